package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	bootstrapv1 "interlock.dev/protos/bootstrap/v1"
	kvv1 "interlock.dev/protos/kv/v1"
)

// launch is a group of this step's own, and one launch of it.
type launch struct {
	group    string
	instance *bootstrapv1.Instance
}

func newLaunch(step string) launch {
	now := time.Now().UnixNano()
	return launch{
		group:    fmt.Sprintf("go-%s-%d", step, now),
		instance: &bootstrapv1.Instance{Id: rand.Text(), StartedAt: uint64(now)},
	}
}

// prefillRoute is what one of two tensor-parallel ranks registers.
func prefillRoute(tp uint32) *bootstrapv1.Route {
	return &bootstrapv1.Route{
		Key:          &bootstrapv1.RankKey{Tp: tp},
		Incarnation:  uint64(time.Now().UnixNano()),
		Sizes:        &bootstrapv1.ParallelSizes{Dp: 1, Cp: 1, Tp: 2, Pp: 1},
		RankIp:       fmt.Sprintf("10.0.0.%d", tp+1),
		RankPort:     9000 + tp,
		PageSize:     64,
		KvCacheDtype: proto.String("bfloat16"),
		Pools:        []kvv1.PoolName{kvv1.PoolName_POOL_NAME_KV, kvv1.PoolName_POOL_NAME_DRAFT},
	}
}

// registerRank registers by compare-and-swap.
func (c *client) registerRank(
	ctx context.Context, l launch, route *bootstrapv1.Route, expectedRevision uint64,
) (*bootstrapv1.RegisterRouteResponse, error) {
	return c.bootstrap.RegisterRoute(ctx, &bootstrapv1.RegisterRouteRequest{
		Group:            l.group,
		Route:            route,
		Instance:         l.instance,
		ExpectedRevision: &expectedRevision,
	})
}

// registerBoth registers two ranks, each from the revision before: the group is ready afterwards.
func (c *client) registerBoth(ctx context.Context, l launch) (uint64, error) {
	first, err := c.registerRank(ctx, l, prefillRoute(0), 0)
	if err != nil {
		return 0, err
	}
	second, err := c.registerRank(ctx, l, prefillRoute(1), first.Revision)
	if err != nil {
		return 0, err
	}
	if !second.Ready || second.Registered != 2 || second.Expected != 2 {
		return 0, fmt.Errorf("the group is not ready with both ranks: %v", second)
	}
	return second.Revision, nil
}

func register(ctx context.Context, c *client) (string, error) {
	l := newLaunch("register")
	revision, err := c.registerBoth(ctx, l)
	if err != nil {
		return "", err
	}
	server, err := c.bootstrap.GetPrefillServerInfo(ctx, &bootstrapv1.GetPrefillServerInfoRequest{
		Group:       l.group,
		MinRevision: &revision,
	})
	if err != nil {
		return "", err
	}
	if info := server.Info; info.PageSize != 64 || info.GetKvCacheDtype() != "bfloat16" || len(info.Pools) != 2 {
		return "", fmt.Errorf("the group is not what was registered: %v", info)
	}
	return fmt.Sprintf("two ranks stand at revision %d", revision), nil
}

func race(ctx context.Context, c *client) (string, error) {
	l := newLaunch("race")
	type outcome struct {
		route *bootstrapv1.Route
		stood *bootstrapv1.RegisterRouteResponse
		err   error
	}
	outcomes := make(chan outcome)
	for tp := range uint32(2) {
		go func() {
			route := prefillRoute(tp)
			stood, err := c.registerRank(ctx, l, route, 0)
			outcomes <- outcome{route, stood, err}
		}()
	}
	won, lost := <-outcomes, <-outcomes
	if won.err != nil {
		won, lost = lost, won
	}
	if won.err != nil {
		return "", won.err
	}
	conflict, err := refusalAs[*bootstrapv1.RevisionConflict](lost.err, codes.Aborted, "REVISION_CONFLICT")
	if err != nil {
		return "", err
	}
	if conflict.Revision != won.stood.Revision || conflict.StandingRoute != nil {
		return "", fmt.Errorf("the refusal does not say what stands at revision %d: %v", won.stood.Revision, conflict)
	}
	stood, err := c.registerRank(ctx, l, lost.route, conflict.Revision)
	if err != nil {
		return "", err
	}
	if !stood.Ready {
		return "", fmt.Errorf("the group is not ready after the second try: %v", stood)
	}
	return fmt.Sprintf("tp %d lost to revision %d and stands at %d", lost.route.Key.Tp, conflict.Revision, stood.Revision), nil
}

func mismatch(ctx context.Context, c *client) (string, error) {
	l := newLaunch("mismatch")
	first, err := c.registerRank(ctx, l, prefillRoute(0), 0)
	if err != nil {
		return "", err
	}
	misfit := prefillRoute(1)
	misfit.PageSize = 128
	misfit.KvCacheDtype = proto.String("fp8_e4m3")
	_, err = c.registerRank(ctx, l, misfit, first.Revision)
	refusal, err := refusalAs[*bootstrapv1.ContractMismatch](err, codes.FailedPrecondition, "CONTRACT_MISMATCH")
	if err != nil {
		return "", err
	}
	var differences []string
	for _, m := range refusal.Mismatches {
		differences = append(differences, fmt.Sprintf("%s: %s stands, %s was offered", m.Field, m.StandingValue, m.OfferedValue))
	}
	detail := strings.Join(differences, "; ")
	if detail != "page_size: 64 stands, 128 was offered; kv_cache_dtype: bfloat16 stands, fp8_e4m3 was offered" {
		return "", fmt.Errorf("other differences than those made: %s", detail)
	}
	return detail, nil
}

func compatibility(ctx context.Context, c *client) (string, error) {
	l := newLaunch("compatibility")
	revision, err := c.registerBoth(ctx, l)
	if err != nil {
		return "", err
	}
	check := func(pageSize, tp uint32) (*bootstrapv1.CheckCompatibilityResponse, error) {
		return c.bootstrap.CheckCompatibility(ctx, &bootstrapv1.CheckCompatibilityRequest{
			Group:       l.group,
			MinRevision: &revision,
			DecodeServer: &bootstrapv1.DecodeServer{
				PageSize: pageSize,
				Sizes:    &bootstrapv1.ParallelSizes{Dp: 1, Cp: 1, Tp: tp, Pp: 1},
			},
		})
	}
	misfit, err := check(128, 3)
	if err != nil {
		return "", err
	}
	var fields []string
	for _, violation := range misfit.Incompatibilities {
		fields = append(fields, violation.Field)
	}
	detail := strings.Join(fields, ", ")
	if detail != "page_size, sizes.tp" {
		return "", fmt.Errorf("128 tokens a page on 3 ranks are refused for other fields: %q", detail)
	}
	fit, err := check(64, 2)
	if err != nil {
		return "", err
	}
	if len(fit.Incompatibilities) != 0 || !fit.Ready {
		return "", fmt.Errorf("64 tokens a page on 2 ranks do not fit: %v", fit)
	}
	return fmt.Sprintf("one does not fit in %s; one fits at revision %d", detail, fit.Revision), nil
}

func rooms(ctx context.Context, c *client) (string, error) {
	l := newLaunch("rooms")
	if _, err := c.registerBoth(ctx, l); err != nil {
		return "", err
	}
	// Past what a double holds exactly, past a signed number, and the last one.
	named := []uint64{1<<53 + 1, 1 << 63, 1<<64 - 1}
	const unknown = 7
	var assignments []*bootstrapv1.RoomAssignment
	for _, room := range named {
		assignments = append(assignments, &bootstrapv1.RoomAssignment{Room: room, DpRank: 0})
	}
	kept, err := c.bootstrap.RegisterDpRanks(ctx, &bootstrapv1.RegisterDpRanksRequest{Group: l.group, Assignments: assignments})
	if err != nil {
		return "", err
	}
	if kept.Registered != 3 || kept.Overwritten != 0 {
		return "", fmt.Errorf("3 new rooms were registered, and the answer is %v", kept)
	}
	answer, err := c.bootstrap.QueryDpRanks(ctx, &bootstrapv1.QueryDpRanksRequest{Group: l.group, Rooms: append(named, unknown)})
	if err != nil {
		return "", err
	}
	var known []uint64
	for _, assignment := range answer.Assignments {
		known = append(known, assignment.Room)
	}
	slices.Sort(known)
	if !slices.Equal(known, named) {
		return "", fmt.Errorf("rooms %d came back as %d", named, known)
	}
	return fmt.Sprintf("%d are known, %d is not", named, unknown), nil
}

func deadline(ctx context.Context, c *client) (string, error) {
	l := newLaunch("deadline")
	revision, err := c.registerBoth(ctx, l)
	if err != nil {
		return "", err
	}
	const patience = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	started := time.Now()
	_, err = c.bootstrap.GetRankInfo(ctx, &bootstrapv1.GetRankInfoRequest{
		Group:       l.group,
		Key:         &bootstrapv1.RankKey{},
		MinRevision: proto.Uint64(revision + 1),
	})
	waited := time.Since(started)
	if status.Code(err) != codes.DeadlineExceeded {
		return "", fmt.Errorf("a call that waits for a revision that does not come ended with: %w", err)
	}
	if waited < patience/2 {
		return "", fmt.Errorf("the call ended after %s, long before its deadline of %s", waited, patience)
	}
	return fmt.Sprintf("%s after %d ms", status.Code(err), waited.Milliseconds()), nil
}
