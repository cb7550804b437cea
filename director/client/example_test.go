package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"vitrine/director/client"
)

// Scale in without losing a transaction: drain the instance, wait until it has
// nothing left to do, then remove it and stop it.
func ExampleClient_Drain() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	director, err := client.New(client.Access{URL: "http://127.0.0.1:8090"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := director.Drain(ctx, "reg-2"); err != nil {
		log.Fatal(err)
	}
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		instance, err := director.Instance(ctx, "reg-2")
		if err != nil {
			log.Fatal(err)
		}
		if instance.Drained {
			break
		}
		fmt.Println(instance.InFlight, "transactions in flight")
	}
	if err := director.Remove(ctx, "reg-2"); err != nil {
		log.Fatal(err)
	}
}
