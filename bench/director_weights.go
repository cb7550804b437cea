package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"time"

	"vitrine/director/client"
)

// reweighCommand is the first argument of this program when it runs as the
// process that changes weights.
const reweighCommand = "reweigh"

const (
	manyInstances  = 1000
	weightChanges  = 10_000 // per minute
	weightLowest   = 50     // weights are random, from weightLowest to weightLowest+weightVariance
	weightVariance = 100
)

// directorWeights compares the highest rates of requests through two directors. One has
// manyInstances instances whose weights change all the time. The other has four instances with
// constant weights.
func directorWeights(ctx context.Context, s *stage, progress io.Writer) (rows []Row, err error) {
	few, err := s.requestPlan(ctx)
	if err != nil {
		return nil, err
	}
	many, all := few, ports{instances.first, manyInstances}
	many.sinks = all
	changing := &rival{device: director(all), floodPlan: many}
	changing.beside = func(ctx context.Context, s *stage) *exec.Cmd {
		return exec.CommandContext(ctx, self(), reweighCommand, fmt.Sprintf("127.0.0.1:%d", controlPort), strconv.Itoa(manyInstances))
	}
	steady := &rival{device: director(instances), floodPlan: few}
	toMany, toFew := &rival{device: bareForwarder(all), floodPlan: many}, &rival{device: bareForwarder(instances), floodPlan: few}
	if err := s.compare(ctx, []*rival{changing, steady, toMany, toFew}, progress); err != nil {
		return nil, err
	}
	row, err := rateRow("director/weights", ">= 0.9", changing, steady)
	row.Against = fmt.Sprintf("four instances, weights that stay; the bare forwarder to %d ports has %.3g of its rate to four", manyInstances, median(toMany.rates)/median(toFew.rates))
	return []Row{row}, err
}

// reweigh changes the weight of one instance after the other until ctx ends. It fails if it made
// notably fewer changes than weightChanges in a minute.
func reweigh(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("want the control address and the number of instances")
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	c, err := client.New(client.Access{URL: args[0]})
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(5, 5))
	const least = 0.9
	began := time.Now()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			if want := time.Since(began).Minutes() * weightChanges; float64(i) < least*want {
				return fmt.Errorf("the director made %d changes of weights, want %.0f", i, want)
			}
			return nil
		case <-time.After(time.Until(began.Add(time.Duration(i) * time.Minute / weightChanges))):
		}
		weight := weightLowest + weightVariance*random.Float64()
		if _, err := c.Alter(ctx, fmt.Sprintf("i%d", i%count), client.Change{Weight: &weight}); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
