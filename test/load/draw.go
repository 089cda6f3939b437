package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	drawColumns, drawRows = 72, 8
	svgColumns, svgRows   = 700, 200 // one pixel each
	svgMargin             = 40
)

// drawText draws shares of one over time as bars of characters. A bar reaches the rows
// of which at least half is filled.
func drawText(out io.Writer, shares []float64, end time.Duration) {
	for row := range drawRows {
		label := ""
		switch row {
		case 0:
			label = "100%"
		case drawRows / 2:
			label = "50%"
		}
		var bars strings.Builder
		for _, share := range shares {
			if share*drawRows >= float64(drawRows-row)-0.5 {
				bars.WriteByte('#')
			} else {
				bars.WriteByte(' ')
			}
		}
		fmt.Fprintf(out, "%5s |%s\n", label, strings.TrimRight(bars.String(), " "))
	}
	last := seconds(end)
	fmt.Fprintf(out, "%5s +%s\n", "0%", strings.Repeat("-", len(shares)))
	fmt.Fprintf(out, "%5s  0 s%*s\n", "", len(shares)-3, last)
}

// drawSVG draws the same as a picture.
func drawSVG(out io.Writer, shares []float64, end time.Duration, title string) {
	width, height := len(shares)+2*svgMargin, svgRows+2*svgMargin
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		width, height, width, height)
	fmt.Fprintf(out, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(out, `<text x="%d" y="%d">%s</text>`+"\n", svgMargin, svgMargin-12, title)
	fmt.Fprintf(out, `<path fill="steelblue" d="M%d %d`, svgMargin, svgMargin+svgRows)
	for i, share := range shares {
		fmt.Fprintf(out, "V%.1fH%d", svgMargin+svgRows*(1-share), svgMargin+i+1)
	}
	fmt.Fprintf(out, `V%dZ"/>`+"\n", svgMargin+svgRows)
	for _, percent := range []int{0, 50, 100} {
		y := svgMargin + svgRows*(100-percent)/100
		fmt.Fprintf(out, `<path stroke="gray" d="M%d %dH%d"/>`+"\n", svgMargin, y, svgMargin+len(shares))
		fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">%d%%</text>`+"\n", svgMargin-4, y+4, percent)
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n</svg>\n", svgMargin+len(shares), svgMargin+svgRows+16, seconds(end))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
