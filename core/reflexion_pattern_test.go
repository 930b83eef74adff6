package core

import (
	"strings"
	"testing"
)

func TestAnErrorBecomesAPatternByTheContractsRulesInTheirOrder(t *testing.T) {
	const id = "123e4567-e89b-12d3-a456-426614174000"
	for _, test := range []struct{ name, message, want string }{
		{"nothing", "", ""},
		{"blanks of any kind", " \t\n\u00a0\u3000\ufeff", ""},
		{"case and blanks", "  Cannot  READ\n\tProperty ", "cannot read property"},
		{"a Windows path", `ENOENT: C:\Users\me\app\main.js missing`, "enoent: <file> missing"},
		{"a Windows path of another script", `파일 D:\사용자\김\보고서.txt 없음`, "파일 <file> 없음"},
		{"a share", `open \\server\share\x.txt`, "open <file>"},
		{"a drive is one letter", `abc:\x`, `abc:\x`},
		{"a Unix path", "open /home/me/app.js: no such file", "open <file>: no such file"},
		{"a Unix path of another script", "열기 실패 /홈/사용자/파일.go", "열기 실패 <file>"},
		{"a Unix path in Cyrillic with a mark", "нет /дом/й/файл", "нет <file>"},
		{"a path of one segment stays", "open /tmp now", "open /tmp now"},
		{"a path with line and column", "at run (/app/src/a.ts:10:5)", "at run (<file>:<line>)"},
		{"a line before a comma", "a.go:12, b.go:7", "a.go:<line>, b.go:<line>"},
		{"a line before a closing bracket of another script", "（main.go:12）", "（main.go:<line>）"},
		{"a line before anything else stays", "ratio 1:2x", "ratio 1:2x"},
		{"only the last two numbers are line and column", "a:1:2:3", "a:1:<line>"},
		{"the word line", "LINE   42: bad", "line <line>: bad"},
		{"line inside a word stays", "pipeline 42", "pipeline 42"},
		{"digits of another script", "line ٤٢", "line <line>"},
		{"a date and time", "at 2026-03-01T12:00:00.123Z failed", "at <time> failed"},
		{"a date and time with an offset", "at 2026-03-01T12:00:00+0900 failed", "at <time> failed"},
		{"the line rule comes before the time rule", "at 2026-03-01T12:30:45 failed", "at <num>-03-01t12:<line> failed"},
		{"a UUID", "job " + strings.ToUpper(id) + " died", "job <id> died"},
		{"a long hexadecimal run", "commit " + strings.Repeat("deadBEEF", 5), "commit <id>"},
		{"31 hexadecimal digits stay", strings.Repeat("a", 31), strings.Repeat("a", 31)},
		{"a time in seconds and in milliseconds", "1700000000 1700000000000", "<time> <time>"},
		{"14 digits are a number", "17000000000000", "<num>"},
		{"numbers of four digits and more", "port 8080, 443, 65535", "port <num>, 443, <num>"},
		{"a code is a word", "TS2304: cannot find name", "ts2304: cannot find name"},
		{"a code of another script is a word", "ОШИБКА2304 снова", "ошибка2304 снова"},
		{"numbers written against a script without case", "端口8080被占用", "端口<num>被占用"},
		{"Hangul counters", "8080번 포트", "<num>번 포트"},
		{"Arabic", "المنفذ ٨٠٨٠ مشغول", "المنفذ <num> مشغول"},
		{"lower case of every script", "ÜBER ΣΦΑΛΜΑ ОШИБКА", "über σφαλμα ошибка"},
		{"what a rule uncovers is found too", id + "line 5", "<id>line <line>"},
		{"bytes that are no text", "a\xffb", "a\ufffdb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ErrorPattern(test.message); got != test.want {
				t.Errorf("pattern of %q is %q, want %q", test.message, got, test.want)
			}
			if again := ErrorPattern(test.want); again != test.want {
				t.Errorf("the pattern %q has the pattern %q", test.want, again)
			}
		})
	}
}

func TestTheSearchedTextIsCutAsItsEscapedFormWouldBe(t *testing.T) {
	for _, test := range []struct{ name, pattern, want string }{
		{"short", "a_b", "a_b"},
		{"100 characters of any width", strings.Repeat("가", 101), strings.Repeat("가", 100)},
		{"escapes count", strings.Repeat("%", 60), strings.Repeat("%", 50)},
		{"a cut inside an escape leaves its character out", strings.Repeat("a", 99) + "_b", strings.Repeat("a", 99)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := searchText(test.pattern); got != test.want {
				t.Errorf("searched is %q, want %q", got, test.want)
			}
		})
	}
}

func FuzzAPatternIsItsOwnPattern(f *testing.F) {
	for _, seed := range []string{
		"", "at /a/b/c.go:1:2", `C:\x\y:5`, "line 5", "İline 5", "2026-01-01  10:20:30Z", "123e4567-e89b-12d3-a456-426614174000line 5",
		"端口8080", "\xff\xfe", "1:2:3:4 ,5", "K2026 \u2028 ٤٢٤٢", "//a//b//", "a\u0301/b\u0301/c/d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		pattern := ErrorPattern(message)
		if again := ErrorPattern(pattern); again != pattern {
			t.Errorf("%q has the pattern %q, and that %q", message, pattern, again)
		}
		if cut := searchText(pattern); !strings.HasPrefix(pattern, cut) {
			t.Errorf("%q is searched as %q", pattern, cut)
		}
	})
}
