package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"vitrine/store/client"
)

// Change a value only if no other instance has changed it meanwhile.
func ExampleKV_Put() {
	ctx := context.Background()
	store, err := client.New(client.Config{Base: "http://127.0.0.1:8070"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	users := store.KV("users")
	value, err := users.Get(ctx, "sip:alice@example.com", client.Conditions{})
	if err != nil {
		log.Fatal(err)
	}
	contact := append(value.Data, ";expires=60"...)
	_, err = users.Put(ctx, "sip:alice@example.com", contact, "text/plain", time.Minute, client.Conditions{IfMatch: value.ETag})
	switch {
	case client.Unmet(err):
		fmt.Println("another instance was faster: read the value again")
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println("the store did not answer")
	case err != nil:
		log.Fatal(err)
	}
}
