package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	bootstrapv1 "interlock.dev/protos/bootstrap/v1"
)

// topology is what a watcher knows of a group.
type topology struct {
	revision uint64
	routes   map[string]*bootstrapv1.Route
	partial  bool // a snapshot or change has begun, and its last message is still to come
}

// apply takes in one message of a watch.
func (t *topology) apply(message *bootstrapv1.WatchTopologyResponse) {
	switch body := message.Body.(type) {
	case *bootstrapv1.WatchTopologyResponse_Snapshot:
		if !t.partial {
			t.routes = map[string]*bootstrapv1.Route{}
		}
		for _, route := range body.Snapshot.Routes {
			t.routes[keyText(route.Key)] = route
		}
	case *bootstrapv1.WatchTopologyResponse_Change:
		for _, event := range body.Change.Events {
			switch e := event.Event.(type) {
			case *bootstrapv1.TopologyEvent_EpochStarted:
				t.routes = map[string]*bootstrapv1.Route{}
			case *bootstrapv1.TopologyEvent_RouteRemoved:
				delete(t.routes, keyText(e.RouteRemoved.Key))
			case *bootstrapv1.TopologyEvent_RouteRegistered:
				t.routes[keyText(e.RouteRegistered.Route.Key)] = e.RouteRegistered.Route
			}
		}
	}
	t.partial = !message.Last
	if message.Last {
		t.revision = message.Revision
	}
}

func keyText(key *bootstrapv1.RankKey) string {
	return fmt.Sprintf("%d/%d/%d/%d", key.GetDp(), key.GetCp(), key.GetTp(), key.GetPp())
}

// follow opens a watch, from a revision if one is known, and waits for a server to be there.
func (c *client) follow(
	ctx context.Context, group string, afterRevision *uint64,
) (grpc.ServerStreamingClient[bootstrapv1.WatchTopologyResponse], error) {
	request := &bootstrapv1.WatchTopologyRequest{Group: group, AfterRevision: afterRevision}
	return c.bootstrap.WatchTopology(ctx, request, grpc.WaitForReady(true))
}

func watchOverRestart(ctx context.Context, c *client) (string, error) {
	l := newLaunch("watch")
	revision, err := c.registerBoth(ctx, l)
	if err != nil {
		return "", err
	}
	var known topology
	stream, err := c.follow(ctx, l.group, nil)
	if err != nil {
		return "", err
	}
	for known.revision < revision {
		message, err := stream.Recv()
		if err != nil {
			return "", err
		}
		known.apply(message)
	}
	if len(known.routes) != 2 {
		return "", fmt.Errorf("the snapshot has %d routes, not 2", len(known.routes))
	}
	if err := c.say(map[string]string{"step": "watch", "waiting": "restart"}); err != nil {
		return "", err
	}
	if err := untilLost(stream); err != nil {
		return "", err
	}

	stream, err = c.resume(ctx, l.group, &known)
	if err != nil {
		return "", err
	}
	restarted := prefillRoute(1)
	restarted.RankPort = 9100
	stood, err := c.registerRank(ctx, l, restarted, known.revision)
	if err != nil {
		return "", err
	}
	for known.revision < stood.Revision {
		message, err := stream.Recv()
		if err != nil {
			return "", err
		}
		if message.GetSnapshot() != nil {
			return "", errors.New("a watch that was current got a second snapshot")
		}
		if events := message.GetChange().GetEvents(); message.GetChange() != nil && len(events) != 1 {
			return "", fmt.Errorf("one registration is %d events", len(events))
		}
		known.apply(message)
	}
	if known.revision != stood.Revision || !proto.Equal(known.routes["0/0/1/0"], restarted) || len(known.routes) != 2 {
		return "", fmt.Errorf("the change at revision %d was not seen as it was made: %v", stood.Revision, known)
	}
	return fmt.Sprintf("resumed at revision %d without a snapshot, then saw revision %d", revision, stood.Revision), nil
}

// untilLost reads until the server is gone; until then only progress may come.
func untilLost(stream grpc.ServerStreamingClient[bootstrapv1.WatchTopologyResponse]) error {
	for {
		message, err := stream.Recv()
		switch {
		case status.Code(err) == codes.Unavailable:
			return nil
		case err != nil:
			return fmt.Errorf("the watch ended otherwise than by a lost server: %w", err)
		case message.GetProgress() == nil:
			return fmt.Errorf("nothing was changed, and the watch says %v", message)
		}
	}
}

// resume opens the watch again after the revision that is known, until a server answers. Whoever is current is told so by
// a progress message, and gets no snapshot.
func (c *client) resume(
	ctx context.Context, group string, known *topology,
) (grpc.ServerStreamingClient[bootstrapv1.WatchTopologyResponse], error) {
	for {
		stream, err := c.follow(ctx, group, &known.revision)
		if err != nil {
			return nil, err
		}
		message, err := stream.Recv()
		switch {
		case status.Code(err) == codes.Unavailable:
			continue // it answered on its way down, or was not yet up
		case err != nil:
			return nil, err
		case message.GetProgress() == nil || message.Revision != known.revision:
			return nil, fmt.Errorf("a watch that was current at revision %d got %v", known.revision, message)
		}
		return stream, nil
	}
}
