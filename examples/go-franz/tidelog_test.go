package shipping

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// Tidelog is a Kafka broker, or several. Copy this file.
type Tidelog struct {
	BootstrapServers, Control string
	Stop                      func()
}

type args map[string]any

var ready = regexp.MustCompile(`^tidelog ready bootstrap\.servers=(\S+) control=(\S+)\n$`)

// StartTidelog runs `tidelog serve`. Further arguments are its own: "--brokers", "3". It ends with
// this process, if not by Stop.
func StartTidelog(more ...string) (*Tidelog, error) {
	fixed := []string{"serve", "--port", "0", "--control", "127.0.0.1:0", "--until-stdin-ends"}
	command := exec.Command("tidelog", append(fixed, more...)...)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("pip install 'tidelog[control]' comes first: %w", err)
	}
	stop := func() {
		stdin.Close()
		command.Wait()
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	found := ready.FindStringSubmatch(line)
	if found == nil {
		stop()
		return nil, fmt.Errorf("tidelog did not start: %q", line)
	}
	return &Tidelog{found[1], found[2], stop}, nil
}

// Call makes a control call of the broker's /openapi.json; a refused one fails the test with the
// reason.
func Call[Result any](t *testing.T, broker *Tidelog, name string, arguments args) Result {
	t.Helper()
	body, err := json.Marshal(arguments)
	check(t, err)
	url := fmt.Sprintf("%s/v1/%s", broker.Control, name)
	response, err := http.Post(url, "application/json", bytes.NewReader(body))
	check(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	check(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", name, answer)
	}
	var result Result
	check(t, json.Unmarshal(answer, &result))
	return result
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
