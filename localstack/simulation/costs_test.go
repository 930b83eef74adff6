package simulation

func (w *world) judgeCost(c *call, a answer) {}
