package main

import (
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// refusalAs takes the typed detail of a refusal out of an error: the code and the reason must be those expected. Programs
// decide by the reason; messages are for people and may change.
func refusalAs[D proto.Message](err error, code codes.Code, reason string) (D, error) {
	var none D
	refused, ok := status.FromError(err)
	if err == nil || !ok {
		return none, fmt.Errorf("no refusal with %s came, but: %v", reason, err)
	}
	var info *errdetails.ErrorInfo
	var detail D
	found := false
	for _, any := range refused.Details() {
		switch d := any.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case D:
			detail, found = d, true
		}
	}
	if refused.Code() != code || info.GetDomain() != "interlock" || info.GetReason() != reason {
		return none, fmt.Errorf("%s (%s of %s) is not %s (%s): %w", refused.Code(), info.GetReason(), info.GetDomain(), code, reason, err)
	}
	if !found {
		return none, fmt.Errorf("%s came without its %T", reason, detail)
	}
	return detail, nil
}
