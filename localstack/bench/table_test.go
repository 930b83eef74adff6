package bench_test

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	committedResult = "testdata/last.txt"
	performancePage = "../../docs/performance.md"
	tableBegins     = "<!-- the table of the committed result begins -->\n"
	tableEnds       = "<!-- the table of the committed result ends -->\n"
)

// point is where a figure was measured.
type point struct {
	operation     string
	rows, callers int
	through       string
}

var resultLine = regexp.MustCompile(`^BenchmarkOperations/op=([^/]+)/rows=(\d+)/callers=(\d+)/through=(\w+)\S*\s+\d+\s+(.*)$`)

// readResult reads the output of the benchmarks: figures by unit.
func readResult(path string) (map[point]map[string]float64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	result := map[point]map[string]float64{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		m := resultLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		rows, _ := strconv.Atoi(m[2])    // the expression lets digits through
		callers, _ := strconv.Atoi(m[3]) // the same
		figures := map[string]float64{}
		parts := strings.Fields(m[5])
		for i := 0; i+1 < len(parts); i += 2 {
			value, err := strconv.ParseFloat(parts[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", lines.Text(), err)
			}
			figures[parts[i+1]] = value
		}
		result[point{m[1], rows, callers, m[4]}] = figures
	}
	return result, lines.Err()
}

// table writes the committed result beside the floors. Requests, rounds and units
// are those of one caller through the handler; rounds, which a busy machine can
// only raise, are the least of the three numbers of rows.
func table(result map[point]map[string]float64) string {
	var b strings.Builder
	b.WriteString("| operation | requests (floor) | rounds (floor) | write units (floor) | read units at 0, 10,000, 100,000 rows (floor) |" +
		" CPU µs at 0, 10,000, 100,000 rows | HTTP, CPU µs | 16 callers over HTTP, a second | why the floor |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, o := range operations {
		f := floors[o.name]
		at := func(rows, callers int, through, unit string) float64 {
			value, measured := result[point{o.name, rows, callers, through}][unit]
			if !measured {
				return math.NaN()
			}
			return value
		}
		rounds := math.Inf(1)
		for _, rows := range []int{0, 10_000, 100_000} {
			if measured := at(rows, 1, "handler", "rounds/op"); !math.IsNaN(measured) {
				rounds = min(rounds, measured)
			}
		}
		three := func(unit string, scale float64) string {
			return fmt.Sprintf("%s, %s, %s", short(at(0, 1, "handler", unit)/scale), short(at(10_000, 1, "handler", unit)/scale), short(at(100_000, 1, "handler", unit)/scale))
		}
		fmt.Fprintf(&b, "| %s | %s (%s) | %s (%s) | %s (%s) | %s (%s) | %s | %s | %s | %s |\n", o.name,
			short(at(0, 1, "handler", "requests/op")), short(f.requests), short(rounds), short(f.rounds),
			short(at(0, 1, "handler", "WRU/op")), short(f.writes), three("RRU/op", 1), short(f.reads),
			three("cpu-ns/op", 1000), short(at(0, 1, "http", "cpu-ns/op")/1000), short(1e9/at(0, 16, "http", "ns/op")), f.why)
	}
	return b.String()
}

// short writes a figure with the digits that mean something, and ? for one that
// was not measured.
func short(v float64) string {
	if math.IsNaN(v) {
		return "?"
	}
	if v >= 10 {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func TestEveryOperationHasItsFloorAndItsFigures(t *testing.T) {
	result, err := readResult(committedResult)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range operations {
		if f, ok := floors[o.name]; !ok || f.requests == 0 || f.rounds == 0 || f.why == "" {
			t.Errorf("%s has no floor", o.name)
		}
		for _, rows := range []int{0, 10_000} { // 100,000, which take the most time, may be missing from a result that was cut off
			for _, callers := range []int{1, 16} {
				for _, through := range []string{"handler", "http"} {
					p := point{o.name, rows, callers, through}
					if result[p]["requests/op"] == 0 {
						t.Errorf("the committed result lacks %+v: run make bench ACCEPT=1", p)
					}
				}
			}
		}
	}
	if len(floors) != len(operations) {
		t.Errorf("%d floors for %d operations", len(floors), len(operations))
	}
}

// TestTheTableOfTheDocsIsTheCommittedResult writes the table with
// DRAWBRIDGE_UPDATE=1.
func TestTheTableOfTheDocsIsTheCommittedResult(t *testing.T) {
	result, err := readResult(committedResult)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(performancePage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(page), tableBegins)
	_, after, ended := strings.Cut(rest, tableEnds)
	if !begun || !ended {
		t.Fatalf("%s does not mark where the table is", performancePage)
	}
	wanted := before + tableBegins + table(result) + tableEnds + after
	if wanted == string(page) {
		return
	}
	if os.Getenv("DRAWBRIDGE_UPDATE") != "1" {
		t.Fatalf("%s does not show %s: write it with DRAWBRIDGE_UPDATE=1 go test ./localstack/bench -run TheTable", performancePage, committedResult)
	}
	if err := os.WriteFile(performancePage, []byte(wanted), 0o600); err != nil {
		t.Fatal(err)
	}
}
