// Package shipping turns orders into shipments, with franz-go.
package shipping

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Order is a record of the topic "orders".
type Order struct {
	ID      int    `json:"id"`
	Article string `json:"article"`
}

// Shipment is a record of the topic "shipments".
type Shipment struct {
	Order int    `json:"order"`
	Label string `json:"label"`
}

// Serve works until the context ends. A shipment is written before the order's offset is committed,
// so a crash may ship an order again, and never loses one.
func Serve(ctx context.Context, options ...kgo.Opt) error {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.ConsumerGroup("shipping"),
		kgo.ConsumeTopics("orders"),
		kgo.DisableAutoCommit(),
	}, options...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for _, record := range fetches.Records() {
			if err := ship(ctx, client, record.Value); err != nil {
				return err
			}
		}
		// An error here is no loss: a later commit includes this one.
		_ = client.CommitUncommittedOffsets(ctx)
	}
}

func ship(ctx context.Context, client *kgo.Client, value []byte) error {
	var order Order
	if err := json.Unmarshal(value, &order); err != nil {
		return nil // no order
	}
	label := fmt.Sprintf("%s of order %d", order.Article, order.ID)
	shipment, err := json.Marshal(Shipment{Order: order.ID, Label: label})
	if err != nil {
		return err
	}
	record := &kgo.Record{Topic: "shipments", Value: shipment}
	return client.ProduceSync(ctx, record).FirstErr()
}
