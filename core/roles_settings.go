package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// RoleSettingsRequest changes the switches that are set.
type RoleSettingsRequest struct {
	MasterEnabled  Opt[bool]
	CTOEnabled     Opt[bool]
	LeadEnabled    Opt[bool]
	CharterVersion Opt[string]
	ClosedScopes   Opt[[]string]
}

// ChangeRoleSettings changes the hub's switches and then takes the authority
// from every role that may have none any more: with its answer, nobody holds a
// role whose manager is off or whose scope is closed. New reservations are
// conditional on the settings' generation, so none slips in behind it. When it
// fails half-way the settings stand, and the sweep of the roles goes on.
//
// Cost: 1 write, and a walk over the roles where a switch is off.
//
// Errors: INVALID_ARGUMENT, SCOPE_ID_INVALID.
func (h *Hub) ChangeRoleSettings(ctx context.Context, r RoleSettingsRequest) (RoleSettings, error) {
	if len(r.CharterVersion.Value) > maxCharterVersion || !isText(r.CharterVersion.Value) {
		return RoleSettings{}, Invalid("charter_version", fmt.Sprintf("charter_version must be at most %d bytes of UTF-8 without control characters", maxCharterVersion))
	}
	if len(r.ClosedScopes.Value) > maxClosedScopes {
		return RoleSettings{}, Invalid("closed_scopes", fmt.Sprintf("closed_scopes must be at most %d", maxClosedScopes))
	}
	for i, scope := range r.ClosedScopes.Value {
		if !scopePattern.MatchString(scope) {
			return RoleSettings{}, InvalidCode(CodeScopeIDInvalid, fmt.Sprintf("closed_scopes[%d]", i), "scope_id must be scp_ and 22 characters of A-Za-z0-9_-")
		}
	}
	if r.ClosedScopes.Set {
		r.ClosedScopes.Value = slices.Compact(slices.Sorted(slices.Values(r.ClosedScopes.Value)))
	}
	settings, err := h.roles.ChangeRoleSettings(ctx, SettingsChange{
		MasterEnabled: r.MasterEnabled, CTOEnabled: r.CTOEnabled, LeadEnabled: r.LeadEnabled,
		CharterVersion: r.CharterVersion, ClosedScopes: r.ClosedScopes, WriteStamp: h.stamp(h.clock.Now()),
	})
	if err != nil {
		return RoleSettings{}, fmt.Errorf("change role settings: %w", err)
	}
	if settings.MasterEnabled && settings.CTOEnabled && settings.LeadEnabled && len(settings.ClosedScopes) == 0 {
		return settings, nil
	}
	err = h.walkRoles(ctx, func(ctx context.Context, r Role) error {
		if settings.disabled(r.Key.Kind) == "" && !settings.closed(r.Key) {
			return nil
		}
		_, err := h.runRole(ctx, r.Key, roleWish{trigger: triggerSettings})
		return err
	})
	return settings, err
}

// RoleSettings returns the switches. Cost: 1 request.
func (h *Hub) RoleSettings(ctx context.Context) (RoleSettings, error) {
	settings, err := h.roles.ReadRoleSettings(ctx)
	if err != nil {
		return RoleSettings{}, fmt.Errorf("read role settings: %w", err)
	}
	return settings, nil
}

const (
	walkPage     = 100
	walkParallel = 8
)

// walkRoles visits every role once. One that fails does not keep the others; the
// failures are returned together.
func (h *Hub) walkRoles(ctx context.Context, visit func(context.Context, Role) error) error {
	var failures []error
	for after := ""; ; {
		page, err := h.roles.ScanRoles(ctx, RoleScan{After: after, Limit: walkPage})
		if err != nil {
			return errors.Join(append(failures, fmt.Errorf("scan roles: %w", err))...)
		}
		if err := each(len(page.Roles), walkParallel, func(i int) error { return visit(ctx, page.Roles[i]) }); err != nil {
			failures = append(failures, err)
		}
		if page.Done {
			return errors.Join(failures...)
		}
		after = page.Last
	}
}

// each runs fn for 0..n-1, at most so many at once, and joins their errors.
func each(n, atOnce int, fn func(i int) error) error {
	failures := make([]error, n)
	slots := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			failures[i] = fn(i)
		})
	}
	wait.Wait()
	return errors.Join(failures...)
}

// RoleRecovery counts what a recovery did, by the reason of each transition.
type RoleRecovery struct {
	Expired   int // holders whose lease had passed
	Reprobed  int // holders that have to acknowledge again
	Fenced    int // activations under way that were cut off
	Unchanged int
}

// The reasons of a recovery's transitions (contract 4.5).
const (
	reasonRestartExpired = "restart_holder_lease_expired"
	reasonRestartReprobe = "restart_reprobe_required"
	reasonRestartFenced  = "restart_activation_fenced"
)

// RecoverRoles fences every authority there is, as after a restart of which
// nobody knows what happened meanwhile: each role that is held or reserved gets
// its next epoch, and holders that are live acknowledge again (contract 4.5). An
// operator asks for it; it also follows a rotation of the hub's identity.
//
// Cost: a walk over the roles, and 2 requests for each that is held.
func (h *Hub) RecoverRoles(ctx context.Context) (RoleRecovery, error) {
	var mu sync.Mutex
	var counts RoleRecovery
	err := h.walkRoles(ctx, func(ctx context.Context, r Role) error {
		reason, err := h.recoverRole(ctx, r.Key)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		switch reason {
		case reasonRestartExpired:
			counts.Expired++
		case reasonRestartReprobe:
			counts.Reprobed++
		case reasonRestartFenced:
			counts.Fenced++
		default:
			counts.Unchanged++
		}
		return nil
	})
	return counts, err
}

// recoverRole recovers one role and returns the reason of its transition, ""
// when it needs none.
func (h *Hub) recoverRole(ctx context.Context, key RoleKey) (string, error) {
	for attempt := range reserveAttempts {
		b, err := h.readBoard(ctx, key)
		if err != nil {
			return "", err
		}
		next, changed := b.recovered(h.ids.New())
		if !changed {
			return "", nil
		}
		done, err := h.roles.StepRole(ctx, RoleStep{Seen: b.Role, Next: b.step(next, "").next, WriteStamp: h.stamp(b.at)})
		if err != nil {
			return "", fmt.Errorf("recover role: %w", err)
		}
		if done.Done {
			return next.LastReason, nil
		}
		if err := pause(ctx, attempt); err != nil {
			return "", err
		}
	}
	return "", Refuse(CodeContended, roleRefusals[CodeContended])
}

// recovered is the role after a recovery (the table of contract 4.5).
func (b board) recovered(activationID string) (Role, bool) {
	r := b.Role
	switch {
	case !r.isStored(), r.Closed:
		return r, false
	case r.Holder != "" && b.holderLease() <= b.now:
		next := r.vacated(b.now, reasonRestartExpired).nextEpoch()
		next.BlockedReason = ""
		return next, true
	case r.Holder != "":
		next := r.step(RoleProbing, b.now, reasonRestartReprobe).nextEpoch()
		next.ActivationID, next.ActivationDeadline, next.CharterAckedEpoch, next.BlockedReason = activationID, 0, Opt[int64]{}, ""
		return next, true
	case r.ActivationID != "" || r.State == RoleProbing:
		return r.vacated(b.now, reasonRestartFenced).nextEpoch(), true
	}
	return r, false
}

// holderLease is the lease that a recovery judges by: the holder's own, bounded
// by the role's. Of a holder that never registered only the role knows one.
func (b board) holderLease() Instant {
	if _, known := b.agents[b.Role.Holder]; known {
		return b.Role.authorityEnds(b.holder(), b.now)
	}
	return b.Role.HolderLeaseExpires
}

// RoleSweep counts what a sweep of the roles did.
type RoleSweep struct {
	Stepped int // roles it took a step with
	Moved   int // early due entries it moved to their deadline
	Lag     time.Duration
	More    bool
}

// The bounds of one run of the role sweep.
const (
	roleSweepLimit = 1000
	roleSweepTime  = 20 * time.Second
	roleSweepPage  = 100
)

// SweepRoles takes the steps that are due: it revokes holders whose lease has
// passed and has the next one activated, excludes candidates that missed their
// deadline, tries again what waited long enough, and elects the legacy cto. No
// rule rests on it: every deadline holds when it is read.
func (h *Hub) SweepRoles(ctx context.Context) (RoleSweep, error) {
	started := h.clock.Now()
	now := InstantOf(started)
	var mu sync.Mutex
	var counts RoleSweep
	failed := h.sweepLegacy(ctx)
	position := ""
	for looked := 0; ; {
		page, err := h.roles.DueRoles(ctx, DueScan{Before: now + 1, After: position, Limit: roleSweepPage})
		if err != nil {
			return counts, errors.Join(failed, fmt.Errorf("read due roles: %w", err))
		}
		if page.Oldest != 0 && (looked >= roleSweepLimit || h.clock.Now().Sub(started) > roleSweepTime) {
			counts.More, counts.Lag = true, now.Sub(page.Oldest)
			return counts, failed
		}
		err = each(len(page.Wires), walkParallel, func(i int) error {
			key, err := ParseRoleWire(page.Wires[i])
			if err != nil {
				return fmt.Errorf("read due role: %w", err)
			}
			plan, err := h.runRole(ctx, key, roleWish{trigger: triggerSweep, cause: SweepRoles})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil, !plan.write:
			case plan.disposition == DispositionAlreadyActive, plan.disposition == DispositionJoined:
				counts.Moved++ // nothing but its entry
			default:
				counts.Stepped++
			}
			return err
		})
		if err != nil {
			// A role that fails does not keep later pages from their steps.
			counts.Lag = max(counts.Lag, now.Sub(page.Oldest))
			failed = errors.Join(failed, err)
		}
		looked += len(page.Wires)
		if position = page.Next; position == "" {
			return counts, failed
		}
	}
}

func (h *Hub) sweepRoles(ctx context.Context) (SweepReport, error) {
	s, err := h.SweepRoles(ctx)
	return SweepReport{Counts: map[string]int{"stepped": s.Stepped, "moved": s.Moved}, Lag: s.Lag, More: s.More}, err
}
