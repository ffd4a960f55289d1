// The Interlock client in Go: every step of examples/clients/README.md against one pair of services.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	bootstrapv1 "interlock.dev/protos/bootstrap/v1"
	preprocessv1 "interlock.dev/protos/preprocess/v1"
)

// stepTimeout is longer than any step takes, a restart of the server included.
const stepTimeout = 50 * time.Second

// client is what the steps work with.
type client struct {
	bootstrap  bootstrapv1.BootstrapServiceClient
	preprocess preprocessv1.PreprocessServiceClient
	pictures   pictureFolder
	say        func(line any) error
}

// step does one thing and gives a line about it for people.
type step struct {
	name string
	run  func(context.Context, *client) (string, error)
}

var steps = []step{
	{"register", register},
	{"race", race},
	{"mismatch", mismatch},
	{"watch", watchOverRestart},
	{"compatibility", compatibility},
	{"rooms", rooms},
	{"picture", picture},
	{"neighbours", neighbours},
	{"cancel", cancelOne},
	{"deadline", deadline},
}

// result is the line that a step ends with.
type result struct {
	Step    string  `json:"step"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail"`
}

var errStepsFailed = errors.New("not every step was ok")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "interlock-client:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	flags := flag.NewFlagSet("interlock-client", flag.ExitOnError)
	bootstrapAddress := flags.String("bootstrap", "127.0.0.1:50051", "`HOST:PORT` of the Bootstrap service")
	preprocessAddress := flags.String("preprocess", "127.0.0.1:50051", "`HOST:PORT` of the Preprocess service")
	pictures := flags.String("pictures", "", "`DIR` with pictures and their expected.json")
	only := flags.String("only", "", "do these steps only: `STEP,...`")
	_ = flags.Parse(arguments) // ExitOnError

	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	bootstrapConnection, err := grpc.NewClient(*bootstrapAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer bootstrapConnection.Close()
	preprocessConnection, err := grpc.NewClient(*preprocessAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer preprocessConnection.Close()

	c := &client{
		bootstrap:  bootstrapv1.NewBootstrapServiceClient(bootstrapConnection),
		preprocess: preprocessv1.NewPreprocessServiceClient(preprocessConnection),
		pictures:   pictureFolder(*pictures),
		say:        json.NewEncoder(os.Stdout).Encode,
	}
	allOK := true
	for _, step := range chosen {
		result := c.do(step)
		allOK = allOK && result.OK
		if err := c.say(result); err != nil {
			return err
		}
	}
	if !allOK {
		return errStepsFailed
	}
	return nil
}

// choose gives the steps named in a list, in their order; all for an empty one.
func choose(only string) ([]step, error) {
	if only == "" {
		return steps, nil
	}
	names := strings.Split(only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no step %q", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return !slices.Contains(names, s.name) }), nil
}

func (c *client) do(s step) result {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	started := time.Now()
	detail, err := s.run(ctx, c)
	if err != nil {
		detail = err.Error()
	}
	return result{s.name, err == nil, time.Since(started).Seconds(), detail}
}
