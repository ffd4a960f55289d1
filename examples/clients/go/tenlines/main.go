// Command tenlines registers the one rank of a group, and reads what a decode server needs to know of it. Shown in
// docs/clients.md.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	pb "interlock.dev/protos/bootstrap/v1"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	now := uint64(time.Now().UnixNano())
	// ten lines
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	bootstrap := pb.NewBootstrapServiceClient(conn)
	instance := &pb.Instance{Id: fmt.Sprintf("launch-%d", now), StartedAt: now}
	sizes := &pb.ParallelSizes{Dp: 1, Cp: 1, Tp: 1, Pp: 1}
	route := &pb.Route{Key: &pb.RankKey{}, Incarnation: now, Sizes: sizes, RankIp: "::1", RankPort: 9000, PageSize: 64}
	request := &pb.RegisterRouteRequest{Group: "prefill-a", Instance: instance, Route: route}
	registered, err := bootstrap.RegisterRoute(ctx, request)
	if err != nil {
		return err
	}
	query := &pb.GetPrefillServerInfoRequest{Group: "prefill-a", MinRevision: proto.Uint64(registered.Revision)}
	ready, err := bootstrap.GetPrefillServerInfo(ctx, query)
	if err != nil {
		return err
	}
	fmt.Printf("ready at revision %d: %d tokens a page\n", ready.Revision, ready.Info.PageSize)
	// that is all
	return nil
}
