package dynamo

import (
	"strconv"
	"strings"
)

// Limits of a DynamoDB number.
const (
	maxDigits   = 38
	maxExponent = 125
	minExponent = -130
)

// A decimal is a number in scientific form, d.ddd × 10^exponent, without
// leading or trailing zero digits. Zero has no digits.
type decimal struct {
	negative bool
	exponent int
	count    int
	digits   [maxDigits]byte // values 0 to 9
}

func errNumeric(text string) *apiError {
	if text == "" {
		return validationError("The parameter cannot be converted to a numeric value")
	}
	return validationError("The parameter cannot be converted to a numeric value: %s", text)
}

func errOverflow() *apiError {
	return validationError("Number overflow. Attempting to store a number with magnitude larger than supported range")
}

func errUnderflow() *apiError {
	return validationError("Number underflow. Attempting to store a number with magnitude smaller than supported range")
}

func errPrecision() *apiError {
	return validationError("Attempting to store more than 38 significant digits in a Number")
}

// canonicalNumber returns the text as which DynamoDB hands a number back:
// plain decimal digits without exponent, sign of plus or idle zeros.
func canonicalNumber(text string) (string, error) {
	if isPlainInteger(text) {
		return text, nil
	}
	return reformatted(text)
}

// reformatted stands alone for its large frame: the common case is not to make a
// goroutine's stack grow.
func reformatted(text string) (string, error) {
	d, err := parseDecimal(text)
	if err != nil {
		return "", err
	}
	return d.String(), nil
}

// isPlainInteger reports whether text is an integer in canonical form that
// cannot break a limit, which is the common case.
func isPlainInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) == 0 || len(digits) > maxDigits {
		return false
	}
	if digits[0] == '0' {
		return text == "0"
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return true
}

// parseDecimal reads a number as DynamoDB accepts it: an optional sign, digits
// with an optional point, an optional exponent.
func parseDecimal(text string) (decimal, error) {
	var d decimal
	rest := text
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		d.negative = rest[0] == '-'
		rest = rest[1:]
	}
	mantissa, power, ok := splitExponent(rest)
	if !ok {
		return decimal{}, errNumeric(text)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if len(whole)+len(fraction) == 0 {
		return decimal{}, errNumeric(text)
	}
	precise := true
	zeros := 0 // zero digits seen since the last other digit
	for i := range len(whole) + len(fraction) {
		var c byte
		if i < len(whole) {
			c = whole[i]
		} else {
			c = fraction[i-len(whole)]
		}
		switch {
		case c < '0' || c > '9':
			return decimal{}, errNumeric(text)
		case c == '0':
			zeros++
			continue
		case d.count == 0:
			d.exponent = len(whole) - 1 - i + power
		default:
			for ; zeros > 0 && d.count < maxDigits; zeros-- {
				d.digits[d.count] = 0
				d.count++
			}
		}
		zeros = 0
		if d.count == maxDigits {
			precise = false
			continue
		}
		d.digits[d.count] = c - '0'
		d.count++
	}
	switch {
	case d.count == 0:
		return decimal{}, nil
	case d.exponent > maxExponent:
		return decimal{}, errOverflow()
	case d.exponent < minExponent:
		return decimal{}, errUnderflow()
	case !precise:
		return decimal{}, errPrecision()
	}
	return d, nil
}

// splitExponent cuts "1.5e3" into "1.5" and 3. Exponents beyond any legal
// number are clamped so that the arithmetic on them cannot overflow.
func splitExponent(text string) (mantissa string, power int, ok bool) {
	at := strings.IndexAny(text, "eE")
	if at < 0 {
		return text, 0, true
	}
	mantissa, digits := text[:at], text[at+1:]
	negative := false
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		negative = digits[0] == '-'
		digits = digits[1:]
	}
	if digits == "" {
		return "", 0, false
	}
	const clamp = 100_000_000
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return "", 0, false
		}
		power = min(power*10+int(digits[i]-'0'), clamp)
	}
	if negative {
		power = -power
	}
	return mantissa, power, true
}

// String gives the canonical text.
func (d decimal) String() string {
	if d.count == 0 {
		return "0"
	}
	text := make([]byte, 0, 48)
	if d.negative {
		text = append(text, '-')
	}
	if d.exponent < 0 {
		text = append(text, "0."...)
		for range -d.exponent - 1 {
			text = append(text, '0')
		}
		for _, digit := range d.digits[:d.count] {
			text = append(text, '0'+digit)
		}
		return string(text)
	}
	for i := range max(d.count, d.exponent+1) {
		if i == d.exponent+1 {
			text = append(text, '.')
		}
		if i < d.count {
			text = append(text, '0'+d.digits[i])
		} else {
			text = append(text, '0')
		}
	}
	return string(text)
}

// compareNumbers orders two canonical numbers.
func compareNumbers(a, b string) int {
	negativeA, negativeB := strings.HasPrefix(a, "-"), strings.HasPrefix(b, "-")
	switch {
	case negativeA && !negativeB:
		return -1
	case !negativeA && negativeB:
		return 1
	case negativeA:
		return compareMagnitudes(b[1:], a[1:])
	}
	return compareMagnitudes(a, b)
}

// compareMagnitudes orders two canonical numbers without sign: the longer
// whole part is larger, and digit strings of equal weight sort as text.
func compareMagnitudes(a, b string) int {
	wholeA, fractionA, _ := strings.Cut(a, ".")
	wholeB, fractionB, _ := strings.Cut(b, ".")
	if len(wholeA) != len(wholeB) {
		return compareInts(len(wholeA), len(wholeB))
	}
	if c := strings.Compare(wholeA, wholeB); c != 0 {
		return c
	}
	return strings.Compare(fractionA, fractionB)
}

func compareInts(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// addNumbers adds two canonical numbers exactly, or subtracts the second when
// minus is set. A result that 38 digits cannot hold is refused with the
// message AWS uses for it, which speaks of an overflow.
func addNumbers(a, b string, minus bool) (string, error) {
	if len(a) < 18 && len(b) < 18 {
		x, errX := strconv.ParseInt(a, 10, 64)
		y, errY := strconv.ParseInt(b, 10, 64)
		if errX == nil && errY == nil {
			if minus {
				y = -y
			}
			return strconv.FormatInt(x+y, 10), nil
		}
	}
	x, err := parseDecimal(a)
	if err != nil {
		return "", err
	}
	y, err := parseDecimal(b)
	if err != nil {
		return "", err
	}
	if minus {
		y.negative = !y.negative
	}
	sum, err := addDecimals(x, y)
	if err != nil {
		return "", err
	}
	return sum.String(), nil
}

// addDecimals lays both numbers out on one digit line, which can be as long as
// the whole range of exponents, and adds or subtracts digit by digit.
func addDecimals(x, y decimal) (decimal, error) {
	if x.count == 0 {
		return y, nil
	}
	if y.count == 0 {
		return x, nil
	}
	if x.magnitudeLess(y) {
		x, y = y, x
	}
	const longest = maxExponent - minExponent + maxDigits + 2
	var line [longest]int8
	top := x.exponent + 1 // weight of line[0], one more for a carry
	width := 0
	place := func(d decimal, sign int8) {
		first := top - d.exponent
		for i, digit := range d.digits[:d.count] {
			line[first+i] += sign * int8(digit)
		}
		width = max(width, first+d.count)
	}
	place(x, 1)
	if x.negative == y.negative {
		place(y, 1)
	} else {
		place(y, -1)
	}
	for i := width - 1; i > 0; i-- {
		switch {
		case line[i] > 9:
			line[i] -= 10
			line[i-1]++
		case line[i] < 0:
			line[i] += 10
			line[i-1]--
		}
	}
	return collectDigits(line[:width], top, x.negative)
}

// collectDigits turns a digit line into a decimal and checks the limits.
func collectDigits(line []int8, top int, negative bool) (decimal, error) {
	first := 0
	for first < len(line) && line[first] == 0 {
		first++
	}
	last := len(line)
	for last > first && line[last-1] == 0 {
		last--
	}
	if first == last {
		return decimal{}, nil
	}
	d := decimal{negative: negative, exponent: top - first, count: last - first}
	if d.count > maxDigits || d.exponent > maxExponent {
		return decimal{}, errOverflow()
	}
	if d.exponent < minExponent {
		return decimal{}, errUnderflow()
	}
	for i, digit := range line[first:last] {
		d.digits[i] = byte(digit)
	}
	return d, nil
}

func (d *decimal) magnitudeLess(other decimal) bool {
	if d.exponent != other.exponent {
		return d.exponent < other.exponent
	}
	return string(d.digits[:d.count]) < string(other.digits[:other.count])
}

// numberSize is the storage size AWS documents as approximate: a byte for
// every two significant digits, one more, and one for a minus sign.
func numberSize(canonical string) int {
	digits := strings.TrimPrefix(canonical, "-")
	size := 1
	if len(digits) != len(canonical) {
		size++
	}
	significant, trailing := 0, 0
	for i := range len(digits) {
		switch c := digits[i]; {
		case c == '.':
		case c == '0' && significant == 0:
		case c == '0':
			significant++
			trailing++
		default:
			significant++
			trailing = 0
		}
	}
	return size + (significant-trailing+1)/2
}
