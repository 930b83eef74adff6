package ddb_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"drawbridge/core"
)

var costRole = core.RoleKey{ProjectID: "prj_AbCdEfGhIjKlMnOpQrStUv", Kind: core.RoleLead, ScopeID: "scp_ZyXwVuTsRqPoNmLkJiHgFe"}

// joinRole makes an agent a candidate.
func (c *costs) joinRole(id string) {
	c.t.Helper()
	c.do(func(ctx context.Context) error {
		_, err := c.core.Register(ctx, core.RegisterRequest{AgentID: id, CLI: "claude", Capabilities: []string{"role:lead:candidate"}})
		return err
	})
	c.do(func(ctx context.Context) error {
		_, err := c.core.AddCandidate(ctx, core.CandidateRequest{Wire: costRole.Wire(), AgentID: id})
		return err
	})
}

func (c *costs) roleNow() core.Role {
	c.t.Helper()
	r, err := c.store.ReadRole(c.t.Context(), costRole.Wire())
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *costs) ensureRole(ctx context.Context) error {
	_, err := c.core.EnsureRole(ctx, core.EnsureRequest{Wire: costRole.Wire(), Trigger: "manual", CauseID: "c"})
	return err
}

// ackRole returns the acknowledgement of the role as it is reserved now.
func (c *costs) ackRole(id string, fences core.Fences) func(context.Context) error {
	r := c.roleNow()
	return func(ctx context.Context) error {
		_, err := c.core.AcknowledgeRole(ctx, core.AckRoleRequest{
			AgentID: id, Wire: r.Wire, HolderAgentID: id, Epoch: r.Epoch, ActivationSeq: r.ActivationSeq, ActivationID: r.ActivationID,
			CharterWire: r.Wire, CharterEpoch: r.Epoch, Fences: fences,
		})
		return err
	}
}

// holdRole has an agent hold the role.
func (c *costs) holdRole(id string) {
	c.t.Helper()
	c.joinRole(id)
	c.do(c.ensureRole)
	c.do(c.ackRole(id, core.Fences{}))
	c.do(func(ctx context.Context) error { // the activation is out of the way
		_, err := c.core.Drain(ctx, core.DrainRequest{AgentID: id, Max: 100, AutoAck: true})
		return err
	})
}

func (c *costs) reserveRole(r core.RoleReservation) func(context.Context) error {
	r.Wire = costRole.Wire()
	return func(ctx context.Context) error {
		_, err := c.core.ReserveRole(ctx, r)
		return err
	}
}

func (c *costs) casRole(p core.RolePatch) func(context.Context) error {
	r := c.roleNow()
	return func(ctx context.Context) error {
		_, err := c.core.CompareAndSetRole(ctx, core.RoleCAS{Wire: r.Wire, Patch: p, Expected: core.RoleExpectation{
			Version: core.Some(r.Version), Epoch: core.Some(r.Epoch), ActivationSeq: core.Some(r.ActivationSeq), ActivationID: core.Some(r.ActivationID),
		}})
		return err
	}
}

func (c *costs) toRole(n int) {
	c.t.Helper()
	for range n {
		c.do(func(ctx context.Context) error {
			_, err := c.core.Publish(ctx, core.PublishRequest{From: "s", To: costRole.Address(), Topic: "t", Priority: 5, TTLMs: 60_000})
			return err
		})
	}
}

func (c *costs) legacyCandidate(id string) {
	c.t.Helper()
	c.do(func(ctx context.Context) error {
		_, err := c.core.Register(ctx, core.RegisterRequest{AgentID: id, CLI: "claude", Capabilities: []string{"cto"}})
		return err
	})
}

// The budgets of design section 3 for roles.
func TestEveryRoleOperationCostsWhatTheDesignAllows(t *testing.T) {
	one := core.Some(int64(1))
	for _, test := range []struct {
		name    string
		prepare func(*costs) func(context.Context) error
		want    spend
	}{
		{"reserve, the first of a role", func(c *costs) func(context.Context) error {
			return c.reserveRole(core.RoleReservation{Patch: core.RolePatch{Holder: core.Some("h")}})
		}, spend{2, 2, 3, 1}},
		{"reserve with an expected version", func(c *costs) func(context.Context) error {
			c.do(c.reserveRole(core.RoleReservation{Patch: core.RolePatch{Holder: core.Some("h")}}))
			return c.reserveRole(core.RoleReservation{Version: core.Some(int64(0)), Patch: core.RolePatch{Holder: core.Some("i")}})
		}, spend{1, 1, 1, 0}},
		{"reserve with an expected version that is stale", func(c *costs) func(context.Context) error {
			c.do(c.reserveRole(core.RoleReservation{}))
			return wantRefusal(c.reserveRole(core.RoleReservation{Version: core.Some(int64(7))}), core.CodeStaleVersion)
		}, spend{1, 1, 1, 0}},
		{"compare-and-set", func(c *costs) func(context.Context) error {
			c.do(c.reserveRole(core.RoleReservation{Patch: core.RolePatch{Holder: core.Some("h")}}))
			return c.casRole(core.RolePatch{State: core.Some(core.RoleActive)})
		}, spend{1, 1, 1, 0}},
		{"compare-and-set that gives the role a deadline", func(c *costs) func(context.Context) error {
			c.do(c.reserveRole(core.RoleReservation{}))
			return c.casRole(core.RolePatch{State: core.Some(core.RoleUnreachable), NextProbe: core.Some(core.Instant(5))})
		}, spend{1, 1, 2, 0}},
		{"compare-and-set that is refused", func(c *costs) func(context.Context) error {
			c.do(c.reserveRole(core.RoleReservation{}))
			stale := c.casRole(core.RolePatch{})
			c.do(c.casRole(core.RolePatch{}))
			return wantRefusal(stale, core.CodeStaleVersion)
		}, spend{1, 1, 1, 0}},
		{"compare-and-set of a role with all its history", func(c *costs) func(context.Context) error {
			c.do(c.reserveRole(core.RoleReservation{Patch: core.RolePatch{Holder: core.Some("holder-1")}}))
			for range core.MaxRoleHistory {
				c.do(c.casRole(core.RolePatch{State: core.Some(core.RoleActive), LastReason: core.Some("because of something")}))
			}
			return c.casRole(core.RolePatch{State: core.Some(core.RoleActive)})
		}, spend{1, 1, 2, 0}},
		{"add a candidate to a role", func(c *costs) func(context.Context) error {
			c.joinRole("b")
			return func(ctx context.Context) error {
				_, err := c.core.AddCandidate(ctx, core.CandidateRequest{Wire: costRole.Wire(), AgentID: "a"})
				return err
			}
		}, spend{3, 4, 1, 4}},
		{"ensure that starts", func(c *costs) func(context.Context) error {
			c.joinRole("b")
			return c.ensureRole
		}, spend{3, 4, 13, 3}},
		{"ensure that joins", func(c *costs) func(context.Context) error {
			c.joinRole("b")
			c.do(c.ensureRole)
			return c.ensureRole
		}, spend{2, 3, 0, 3}},
		{"ensure of a role that is held", func(c *costs) func(context.Context) error {
			c.holdRole("b")
			return c.ensureRole
		}, spend{2, 3, 0, 3}},
		{"acknowledge with the generation", func(c *costs) func(context.Context) error {
			c.joinRole("b")
			c.do(c.ensureRole)
			return c.ackRole("b", core.Fences{Generation: one})
		}, spend{1, 3, 4, 2}},
		{"acknowledge without the generation", func(c *costs) func(context.Context) error {
			c.joinRole("b")
			c.do(c.ensureRole)
			return c.ackRole("b", core.Fences{})
		}, spend{2, 4, 4, 3}},
		{"release", func(c *costs) func(context.Context) error {
			c.holdRole("b")
			epoch := c.roleNow().Epoch
			return func(ctx context.Context) error {
				_, err := c.core.ReleaseRole(ctx, core.ReleaseRequest{Wire: costRole.Wire(), AgentID: "b", Epoch: epoch})
				return err
			}
		}, spend{3, 4, 2, 3}},
		{"check a fence", func(c *costs) func(context.Context) error {
			c.holdRole("b")
			return func(ctx context.Context) error {
				_, err := c.core.CheckRoleFence(ctx, core.FenceQuery{Wire: costRole.Wire(), AgentID: "b", Epoch: 1})
				return err
			}
		}, spend{1, 1, 0, 4}},
		{"heartbeat of a holder", func(c *costs) func(context.Context) error {
			c.holdRole("b")
			return func(ctx context.Context) error {
				_, err := c.core.Heartbeat(ctx, core.HeartbeatRequest{AgentID: "b"})
				return err
			}
		}, spend{1, 1, 1, 0}},
		{"attach a value under 1 KB, with the generation", func(c *costs) func(context.Context) error {
			c.holdRole("b")
			return func(ctx context.Context) error {
				_, err := c.core.SetRoleValue(ctx, core.RoleValueRequest{
					Wire: costRole.Wire(), AgentID: "b", Epoch: 1, Value: json.RawMessage("1"), Fences: core.Fences{Generation: one},
				})
				return err
			}
		}, spend{1, 1, 6, 0}},
		{"drain 10 messages of a role's inbox", func(c *costs) func(context.Context) error {
			c.holdRole("b")
			c.toRole(10)
			return func(ctx context.Context) error {
				d, err := c.core.Drain(ctx, core.DrainRequest{AgentID: "b", Max: 10, AutoAck: true})
				if err == nil && len(d.Messages) != 10 {
					return fmt.Errorf("%d messages", len(d.Messages))
				}
				return err
			}
		}, spend{3, 7, 44, 7}},
		{"drain of an agent without a role", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.core.Drain(ctx, core.DrainRequest{AgentID: "a", Max: 10, AutoAck: true})
				return err
			}
		}, spend{1, 3, 0, 3}},
		{"heartbeat of the legacy leader", func(c *costs) func(context.Context) error {
			c.legacyCandidate("l")
			return func(ctx context.Context) error {
				_, err := c.core.Heartbeat(ctx, core.HeartbeatRequest{AgentID: "l"})
				return err
			}
		}, spend{2, 2, 1, 1}},
		{"heartbeat of another legacy candidate", func(c *costs) func(context.Context) error {
			c.legacyCandidate("l")
			c.legacyCandidate("m")
			return func(ctx context.Context) error {
				_, err := c.core.Heartbeat(ctx, core.HeartbeatRequest{AgentID: "m"})
				return err
			}
		}, spend{4, 4, 1, 4}},
		{"deregister of the legacy leader", func(c *costs) func(context.Context) error {
			c.legacyCandidate("l")
			c.legacyCandidate("m")
			return func(ctx context.Context) error {
				_, err := c.core.Deregister(ctx, core.DeregisterRequest{AgentID: "l"})
				return err
			}
		}, spend{5, 5, 3, 4}},
		{"sweep of the roles with nothing due", func(c *costs) func(context.Context) error {
			return func(ctx context.Context) error { _, err := c.core.SweepRoles(ctx); return err }
		}, spend{2, 5, 0, 3}},
		{"status of 10 roles", func(c *costs) func(context.Context) error {
			for i := range 10 {
				key := core.RoleKey{ProjectID: costRole.ProjectID, Kind: core.RoleLead, ScopeID: fmt.Sprintf("scp_%022d", i)}
				c.do(func(ctx context.Context) error {
					_, err := c.core.ReserveRole(ctx, core.RoleReservation{Wire: key.Wire()})
					return err
				})
			}
			return func(ctx context.Context) error {
				_, err := c.core.RoleStatus(ctx, core.RoleQuery{ProjectID: core.Some(costRole.ProjectID)})
				return err
			}
		}, spend{3, 32, 0, 40.5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCosts(t)
				operation := test.prepare(c)
				c.clock.Advance(time.Millisecond)
				if got := c.measure(operation); got != test.want {
					t.Errorf("%d rounds, %d requests, %g write units, %g read units; want %+v", got.rounds, got.requests, got.write, got.read, test.want)
				}
			})
		})
	}
}

func wantRefusal(operation func(context.Context) error, code core.Code) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := operation(ctx); core.CodeOf(err) != code {
			return fmt.Errorf("not refused with %s: %w", code, err)
		}
		return nil
	}
}
