package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestATakenPortTellsByWhom(t *testing.T) {
	l, err := listen("127.0.0.1:0", "the hub", "http")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = listen(l.Addr().String(), "the hub", "http")
	if err == nil {
		t.Fatal("the port was opened twice")
	}
	want := fmt.Sprintf("%s of the hub is taken by process %d (", l.Addr(), os.Getpid())
	if runtime.GOOS != "linux" {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		want = fmt.Sprintf("%s of the hub is taken by another process (find it with: lsof -nP -iTCP:%s", l.Addr(), port)
	}
	if !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "choose another with -http") {
		t.Errorf("got  %v\nwant %s...", err, want)
	}
}

func TestAnAddressThatIsNoneIsAnError(t *testing.T) {
	for _, address := range []string{"nonsense", "127.0.0.1:99999", "192.0.2.1:80"} {
		if l, err := listen(address, "the hub", "http"); err == nil {
			l.Close()
			t.Errorf("listened at %s", address)
		}
	}
}

func TestListenersAreFoundInTheKernelsTable(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:6CF0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1001 1 0 100 0 0 10 0
   1: 0100007F:6CF0 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1002 1 0 20 4 30 10 -1
   2: 00000000:11D6 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1003 1 0 100 0 0 10 0
   short line
`
	if got := listeners(table, 27888); !slices.Equal(got, []string{"1001"}) {
		t.Errorf("got %v", got)
	}
}
