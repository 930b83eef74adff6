package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A power of two is split into 32 buckets, so that a quantile is right to 3 %.
const (
	subBits = 5
	buckets = (64 - subBits) << subBits
)

// Latencies counts how long operations took, in constant space. Its methods may
// be called from many goroutines. The zero value is empty.
type Latencies struct {
	count, longest, sum atomic.Int64
	buckets             [buckets]atomic.Int64
}

// Add counts one operation.
func (l *Latencies) Add(d time.Duration) {
	ns := max(0, int64(d))
	l.count.Add(1)
	l.sum.Add(ns)
	l.buckets[bucketOf(ns)].Add(1)
	for {
		longest := l.longest.Load()
		if ns <= longest || l.longest.CompareAndSwap(longest, ns) {
			return
		}
	}
}

// bucketOf is the bucket of a duration. Those below 2^subBits have one each;
// above, the bits after the leading one choose among those of its power.
func bucketOf(ns int64) int {
	power := bits.Len64(uint64(ns)) - 1 - subBits
	if power <= 0 {
		return int(ns)
	}
	return power<<subBits + int(ns>>power)
}

// ceilingOf is the longest duration of a bucket.
func ceilingOf(bucket int) int64 {
	power := bucket>>subBits - 1
	if power <= 0 {
		return int64(bucket)
	}
	return int64(bucket-power<<subBits+1)<<power - 1
}

// Count is how many operations were counted.
func (l *Latencies) Count() int64 { return l.count.Load() }

// Longest is how long the slowest operation took.
func (l *Latencies) Longest() time.Duration { return time.Duration(l.longest.Load()) }

// Mean is how long an operation took on average, zero without one.
func (l *Latencies) Mean() time.Duration {
	return time.Duration(l.sum.Load() / max(1, l.count.Load()))
}

// Quantile is the duration that the fraction q of all operations did not
// exceed, zero without one.
func (l *Latencies) Quantile(q float64) time.Duration {
	wanted, seen := int64(q*float64(l.Count())+0.5), int64(0)
	if l.Count() == 0 {
		return 0
	}
	for i := range l.buckets {
		if seen += l.buckets[i].Load(); seen >= max(1, wanted) {
			return min(l.Longest(), time.Duration(ceilingOf(i)))
		}
	}
	return l.Longest()
}
