// kfake as a process: one broker until the end of standard input. Arguments: port, partitions of
// topics made on the way, and a folder for the data (left out: memory only).
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func main() {
	options := []kfake.Opt{
		kfake.NumBrokers(1), kfake.Ports(number(os.Args[1])), kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(number(os.Args[2])),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	}
	if len(os.Args) > 3 {
		options = append(options, kfake.DataDir(os.Args[3]))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready", cluster.ListenAddrs()[0])
	io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}
