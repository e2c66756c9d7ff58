package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func createTopic() map[string]any {
	c := client()
	defer c.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 30_000
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = *topic, int32(*partitions), int16(*replicas)
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(context.Background(), c)
	check(err)
	check(kerr.ErrorForCode(answer.Topics[0].ErrorCode))
	return map[string]any{}
}

func deleteTopic() map[string]any {
	c := client()
	defer c.Close()
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = 30_000
	request.TopicNames = []string{*topic}
	wanted := kmsg.NewDeleteTopicsRequestTopic()
	wanted.Topic = topic
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(context.Background(), c)
	check(err)
	check(kerr.ErrorForCode(answer.Topics[0].ErrorCode))
	return map[string]any{}
}
