package s3queue

import (
	"sync"
)

// width is how many requests one operation has under way at most.
const width = 16

// each calls fn for 0 to n-1, up to width at once, and returns when all are
// done.
func each(n int, fn func(i int)) {
	if n == 1 {
		fn(0)
		return
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, width)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			fn(i)
		})
	}
	group.Wait()
}
