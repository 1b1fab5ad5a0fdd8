// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/unicode/norm"
)

// A simpleEncoding maps the 256 codes of a simple font to texts.
type simpleEncoding [256]string

func fromCharmap(m *charmap.Charmap) (a simpleEncoding) {
	for c := range a {
		if r := m.DecodeByte(byte(c)); r != utf8.RuneError && c >= ' ' {
			a[c] = string(r)
		}
	}
	return a
}

var (
	// The PDF standard maps the codes that Windows leaves unused to a bullet.
	winAnsi = func() simpleEncoding {
		a := fromCharmap(charmap.Windows1252)
		for _, c := range []int{0x7F, 0x81, 0x8D, 0x8F, 0x90, 0x9D} {
			a[c] = "•"
		}
		return a
	}()
	macRoman = fromCharmap(charmap.Macintosh)
	standard = func() (a simpleEncoding) {
		for c := ' '; c < 0x7F; c++ {
			a[c] = string(c)
		}
		a[0x27], a[0x60] = "’", "‘"
		setRange(&a, 0xA1, "¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ\x00–†‡·\x00¶•‚„”»…‰\x00¿\x00`´ˆ˜¯˘˙¨\x00˚¸\x00˝˛ˇ—")
		setRange(&a, 0xE1, "Æ\x00ª\x00\x00\x00\x00ŁØŒº\x00\x00\x00\x00\x00æ\x00\x00\x00ı\x00\x00łøœß")
		return a
	}()
	symbol = func() (a simpleEncoding) {
		setRange(&a, 0x20, " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼")
		setRange(&a, 0xA0, "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…│─↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪")
		setRange(&a, 0xF1, "〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭")
		return a
	}()
	dingbats = func() (a simpleEncoding) {
		a[0x20] = " "
		for c := 0x21; c <= 0xFE; c++ {
			if c < 0x7F || c > 0xA0 {
				a[c] = string(rune(0x2700 + c - 0x20))
			}
		}
		for c, r := range map[int]rune{
			0x25: '☎', 0x2A: '☛', 0x2B: '☞', 0x48: '★', 0x6C: '●', 0x6E: '■', 0x73: '▲', 0x74: '▼', 0x75: '◆', 0x77: '◗',
			0xA8: '♣', 0xA9: '♦', 0xAA: '♥', 0xAB: '♠', 0xD5: '→', 0xD6: '↔', 0xD7: '↕',
		} {
			a[c] = string(r)
		}
		for c := 0xAC; c <= 0xB5; c++ {
			a[c] = string(rune('①' + c - 0xAC))
		}
		return a
	}()
)

func setRange(a *simpleEncoding, from int, text string) {
	for _, r := range text {
		if r != 0 {
			a[from] = string(r)
		}
		from++
	}
}

// accents are the suffixes of glyph names for combining marks.
var accents = map[string]rune{
	"acute": 0x301, "grave": 0x300, "circumflex": 0x302, "dieresis": 0x308, "tilde": 0x303, "ring": 0x30A, "caron": 0x30C,
	"cedilla": 0x327, "macron": 0x304, "breve": 0x306, "ogonek": 0x328, "dotaccent": 0x307, "hungarumlaut": 0x30B, "commaaccent": 0x326,
	"tonos": 0x301, "dieresistonos": 0x344, "dotbelow": 0x323, "hook": 0x309, "horn": 0x31B,
}

// glyphNames are the texts of glyph names that glyphText cannot compute.
var glyphNames = func() map[string]string {
	names := map[string]string{}
	for _, entry := range strings.Fields(`space=\x20 exclam=! quotedbl=" numbersign=# dollar=$ percent=% ampersand=& quotesingle=' parenleft=(
		parenright=) asterisk=* plus=+ comma=, hyphen=- minus=− period=. slash=/ zero=0 one=1 two=2 three=3 four=4 five=5 six=6 seven=7
		eight=8 nine=9 colon=: semicolon=; less=< equal== greater=> question=? at=@ bracketleft=[ backslash=\ bracketright=]
		asciicircum=^ underscore=_ grave=\x60 quoteleft=‘ quoteright=’ braceleft={ bar=| braceright=} asciitilde=~ exclamdown=¡ cent=¢
		sterling=£ fraction=⁄ yen=¥ florin=ƒ section=§ currency=¤ quotedblleft=“ guillemotleft=« guilsinglleft=‹ guilsinglright=›
		fi=ﬁ fl=ﬂ ff=ﬀ ffi=ﬃ ffl=ﬄ endash=– dagger=† daggerdbl=‡ periodcentered=· middot=· paragraph=¶ bullet=• quotesinglbase=‚
		quotedblbase=„ quotedblright=” guillemotright=» ellipsis=… perthousand=‰ questiondown=¿ acute=´ circumflex=ˆ tilde=˜ macron=¯
		breve=˘ dotaccent=˙ dieresis=¨ ring=˚ cedilla=¸ hungarumlaut=˝ ogonek=˛ caron=ˇ emdash=— AE=Æ ae=æ OE=Œ oe=œ ordfeminine=ª
		ordmasculine=º Lslash=Ł lslash=ł Oslash=Ø oslash=ø dotlessi=ı dotlessj=ȷ germandbls=ß Eth=Ð eth=ð Thorn=Þ thorn=þ Dcroat=Đ
		dcroat=đ Hbar=Ħ hbar=ħ Tbar=Ŧ tbar=ŧ Eng=Ŋ eng=ŋ kgreenlandic=ĸ longs=ſ IJ=Ĳ ij=ĳ Ldot=Ŀ ldot=ŀ napostrophe=ŉ
		onesuperior=¹ twosuperior=² threesuperior=³ onequarter=¼ onehalf=½ threequarters=¾ degree=° plusminus=± multiply=× divide=÷
		logicalnot=¬ mu=µ brokenbar=¦ copyright=© registered=® trademark=™ Euro=€ euro=€ nbspace=\x20 nonbreakingspace=\x20 sfthyphen=\xAD
		softhyphen=\xAD figuredash=‒ afii00208=― underscoredbl=‗ minute=′ second=″ summation=∑ product=∏ integral=∫ radical=√
		infinity=∞ partialdiff=∂ lozenge=◊ approxequal=≈ notequal=≠ lessequal=≤ greaterequal=≥ Delta=Δ Omega=Ω increment=∆ pi=π
		equivalence=≡ element=∈ notelement=∉ intersection=∩ union=∪ emptyset=∅ gradient=∇ existential=∃ universal=∀ proportional=∝
		arrowleft=← arrowup=↑ arrowright=→ arrowdown=↓ arrowboth=↔ arrowdblright=⇒ arrowdblleft=⇐ arrowdblboth=⇔ dotmath=⋅
		asteriskmath=∗ similar=∼ congruent=≅ therefore=∴ perpendicular=⊥ angle=∠ logicaland=∧ logicalor=∨ circleplus=⊕ circlemultiply=⊗
		propersubset=⊂ propersuperset=⊃ reflexsubset=⊆ reflexsuperset=⊇ angleleft=〈 angleright=〉 filledbox=■ H18533=■ H22073=□ circle=○
		H18543=▪ H18551=▫ openbullet=◦ heart=♥ club=♣ diamond=♦ spade=♠ checkmark=✓ triangleright=▹ visiblespace=␣ openbullet=◦
		Alpha=Α Beta=Β Gamma=Γ Epsilon=Ε Zeta=Ζ Eta=Η Theta=Θ Iota=Ι Kappa=Κ Lambda=Λ Mu=Μ Nu=Ν Xi=Ξ Omicron=Ο Pi=Π Rho=Ρ
		Sigma=Σ Tau=Τ Upsilon=Υ Phi=Φ Chi=Χ Psi=Ψ alpha=α beta=β gamma=γ delta=δ epsilon=ε zeta=ζ eta=η theta=θ iota=ι kappa=κ
		lambda=λ nu=ν xi=ξ omicron=ο rho=ρ sigma=σ sigma1=ς tau=τ upsilon=υ phi=φ chi=χ psi=ψ omega=ω theta1=ϑ phi1=ϕ omega1=ϖ
		afii61352=№ afii10023=Ё afii10071=ё estimated=℮ aleph=ℵ weierstrass=℘ Ifraktur=ℑ Rfraktur=ℜ`) {
		name, text, _ := strings.Cut(entry, "=")
		switch text {
		case `\x20`:
			text = " "
		case `\xAD`:
			text = "\u00AD"
		case `\x60`:
			text = "`"
		}
		names[name] = text
	}
	// Cyrillic glyphs are numbered in alphabetical order, except for Ё.
	for i := range 32 {
		upper := 10017 + i
		if i > 5 {
			upper++
		}
		names["afii"+strconv.Itoa(upper)] = string(rune('А' + i))
		names["afii"+strconv.Itoa(upper+48)] = string(rune('а' + i))
	}
	return names
}()

// glyphText returns the text of a glyph name such as "A", "Aacute", "uni0041",
// "u1F600", "f_i" or "a.sc", or "" for an unknown one.
func glyphText(name string) string {
	name, _, _ = strings.Cut(name, ".")
	if t, ok := glyphNames[name]; ok {
		return t
	}
	if utf8.RuneCountInString(name) == 1 {
		return name
	}
	if parts := strings.Split(name, "_"); len(parts) > 1 && len(parts) < 8 {
		var out strings.Builder
		for _, p := range parts {
			out.WriteString(glyphText(p))
		}
		return out.String()
	}
	if hex, ok := strings.CutPrefix(name, "uni"); ok && len(hex) >= 4 && len(hex)%4 == 0 && len(hex) <= 32 {
		var out strings.Builder
		for i := 0; i < len(hex); i += 4 {
			out.WriteString(hexRune(hex[i : i+4]))
		}
		if out.Len() > 0 {
			return out.String()
		}
	}
	if hex, ok := strings.CutPrefix(name, "u"); ok && len(hex) >= 4 && len(hex) <= 6 {
		if t := hexRune(hex); t != "" {
			return t
		}
	}
	for n := min(3, len(name)-1); n > 0; n-- { // "Aacute", "AEacute", "Omegatonos"
		if mark, ok := accents[name[n:]]; ok {
			if base := glyphText(name[:n]); base != "" {
				return norm.NFC.String(base + string(mark))
			}
		}
	}
	if base, ok := strings.CutSuffix(name, "tonos"); ok && glyphNames[base] != "" {
		return norm.NFC.String(glyphNames[base] + "\u0301")
	}
	return ""
}

func hexRune(hex string) string {
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || n < ' ' || !utf8.ValidRune(rune(n)) {
		return ""
	}
	return string(rune(n))
}

// privateUse are the private-use codes that word processors give to the bullets
// of their symbol fonts.
var privateUse = map[rune]rune{
	0xF0B7: '•', 0xF0A7: '▪', 0xF06E: '■', 0xF06F: '□', 0xF0A8: '◻', 0xF0D8: '➢', 0xF0FC: '✓', 0xF076: '❖', 0xF06C: '●',
	0xF0E0: '→', 0xF0E8: '➔', 0xF02D: '-', 0xF0A0: ' ', 0xF020: ' ',
}
