package core

// Opt is a value that may be absent. What JSON null means for a field has been
// resolved by whoever decoded it.
type Opt[T any] struct {
	Value T
	Set   bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, Set: true} }

// or returns the value, or what stands for an absent one.
func (o Opt[T]) or(absent T) T {
	if o.Set {
		return o.Value
	}
	return absent
}
