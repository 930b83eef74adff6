package functions

import (
	"context"

	"drawbridge/core"
)

// --- hub/rotate

type rotateRequest struct {
	Reason core.Opt[string] `json:"reason" in:"line" doc:"Why, for the record."`
}

type rotateResponse struct {
	HubInstanceID         string `json:"hub_instance_id"`
	PreviousHubInstanceID string `json:"previous_hub_instance_id"`
	// Roles is null when the recovery did not come to its end.
	Roles *recoveryView `json:"roles_recovered" doc:"What the recovery of the roles did; null: repeat it with roles/recover."`
}

func rotateHub(ctx context.Context, c *call, r rotateRequest) (rotateResponse, error) {
	done, err := c.hub.RotateIdentity(ctx, r.Reason.Value)
	if err != nil {
		return rotateResponse{}, err
	}
	answer := rotateResponse{HubInstanceID: done.Identity.HubInstanceID, PreviousHubInstanceID: done.Previous}
	// The rotation is done, whatever becomes of the recovery: a failure must not
	// make the caller rotate again.
	if recovered, err := c.hub.RecoverRoles(ctx); err == nil {
		answer.Roles = recoveryViewOf(recovered)
	}
	return answer, nil
}

// --- send-input (contract 2.14)

type sendInputRequest struct {
	SessionID string `json:"session_id" in:"line,required,min=1"`
	Text      string `json:"text" in:"text,required,min=1"`
}

type sendInputResponse struct {
	SessionID string `json:"session_id"`
	Sent      bool   `json:"sent"`
}

// sendInput refuses: conductors are processes of the user's machine.
func sendInput(context.Context, *call, sendInputRequest) (sendInputResponse, error) {
	return sendInputResponse{}, core.Refuse(core.CodeConductorUnavailable, "this hub has no conductors; publish a message to the agent instead")
}
