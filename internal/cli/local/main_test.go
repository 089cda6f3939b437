package local

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// holderEnv makes this test binary lock the named directory, as an `up` does, until SIGTERM - or as SIGTERM is configured.
const (
	holderEnv   = "BERTH_LOCAL_TEST_HOLDER"
	stubbornEnv = "BERTH_LOCAL_TEST_STUBBORN"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(holderEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	held, err := acquire(dir, Record{PID: os.Getpid(), Version: "test", Server: "https://127.0.0.1:1", Kubeconfig: dir + "/kubeconfig"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("holding")
	<-terminated
	if os.Getenv(stubbornEnv) != "" {
		select {}
	}
	held.release()
}

// holder runs another process that has locked the directory, and returns its pid.
func holder(t *testing.T, dir string, stubborn bool) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), holderEnv+"="+dir)
	if stubborn {
		command.Env = append(command.Env, stubbornEnv+"=1")
	}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "holding\n" {
		t.Fatalf("the other process says %q (%v)", line, err)
	}
	return command.Process.Pid
}
