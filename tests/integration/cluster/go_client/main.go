// Publishes and reads with the unmodified Go client until its input ends, and prints what it saw.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	liftbridge "github.com/liftbridge-io/go-liftbridge/v2"
)

var printing sync.Mutex

func say(format string, values ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf(format+"\n", values...)
}

func main() {
	client, err := liftbridge.Connect(strings.Split(os.Args[1], ","))
	if err != nil {
		say("failed connect %v", err)
		os.Exit(1)
	}
	defer client.Close()
	stream := os.Args[2]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err = client.Subscribe(ctx, stream, func(message *liftbridge.Message, err error) {
		if err != nil {
			say("failed read %v", err)
			return
		}
		say("read %d %s", message.Offset(), message.Value())
	}, liftbridge.StartAtEarliestReceived())
	if err != nil {
		say("failed subscribe %v", err)
		os.Exit(1)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for number := 0; ; number++ {
		select {
		case <-ended:
			return
		default:
		}
		value := fmt.Sprintf("go-%d", number)
		limited, done := context.WithTimeout(ctx, 5*time.Second)
		ack, err := client.Publish(limited, stream, []byte(value), liftbridge.AckPolicyAll())
		done()
		if err != nil {
			say("failed publish %v", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		say("acked %d %s", ack.Offset(), value)
	}
}
