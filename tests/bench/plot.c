// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDTH 250 // of a panel's plot
#define HEIGHT 190
#define LEFT 46 // room around it
#define RIGHT 136
#define TOP 34
#define BOTTOM 40
#define HEADER 58
#define LABEL_GAP 12.5

static const char *const colours[] = {"#1f5fa8", "#c2571a", "#2c8a57", "#8a3a9c", "#6b6b6b"};

// One panel's place and scale: decades from LOW[] on, SPAN[] of them; 0 is x, 1 is y.
struct frame {
	FILE *f;
	double left, top;
	double low[2], span[2];
};

struct label {
	double y;
	const struct plot_line *line;
};

static const char *colour_of(const struct plot_line *l)
{
	return colours[(size_t)l->colour % (sizeof colours / sizeof *colours)];
}

static double x_of(const struct frame *at, double decade)
{
	return at->left + (decade - at->low[0]) / at->span[0] * WIDTH;
}

static double y_of(const struct frame *at, double decade)
{
	return at->top + HEIGHT - (decade - at->low[1]) / at->span[1] * HEIGHT;
}

// The last point of Y, or -1.
static int last_point(const double *y)
{
	int i = PLOT_POINTS - 1;
	while (i >= 0 && !(y[i] > 0))
		i--;
	return i;
}

double plot_growth(const double *x, const double *y)
{
	int i = last_point(y);
	return i > 0 && y[i - 1] > 0 && x[i - 1] > 0 && x[i] > x[i - 1]
		       ? pow(y[i] / y[i - 1], 1 / log10(x[i] / x[i - 1]))
		       : 0;
}

// Whole decades around all points of the panel. Panels of one plot have the same width, so that slopes can be compared.
static void frame_scale(struct frame *at, const struct plot *p, const struct plot_panel *panel)
{
	double low = HUGE_VAL, high = -HUGE_VAL;
	for (int i = 0; i < panel->lines; i++) {
		for (int k = 0; k < PLOT_POINTS; k++) {
			double y = panel->line[i].y[k];
			if (!(y > 0))
				continue;
			low = fmin(low, floor(log10(y)));
			high = fmax(high, ceil(log10(y)));
		}
	}
	at->low[0] = log10(p->from);
	at->span[0] = log10(p->to) - at->low[0];
	at->low[1] = low <= high ? low : 0;
	at->span[1] = low < high ? high - low : 1;
}

static void line(const struct frame *at, const char *style, double x0, double y0, double x1, double y1)
{
	fprintf(at->f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1, style);
}

// A number as short as it can be: 0.1, 10, 1000, 10k, 1M.
static void tick(const struct frame *at, double x, double y, const char *anchor, double decade)
{
	static const char *const unit[] = {"", "k", "M"};
	double v = pow(10, decade);
	int of = v > 0.999e6 ? 2 : v > 0.999e4 ? 1 : 0;
	int digits = decade < -0.5 ? -(int)lround(decade) : 0;
	fprintf(at->f, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.*f%s</text>\n", x, y, anchor,
		digits, v / pow(1000, of), unit[of]);
}

static void draw_axes(const struct frame *at, const struct plot *p, const struct plot_panel *panel)
{
	static const char grid[] = "stroke=\"#e4e4e4\"";
	static const char guide[] = "stroke=\"#a8a8a8\" stroke-dasharray=\"1 3\"";
	double right = at->left + WIDTH, bottom = at->top + HEIGHT;
	for (int k = 0; k <= (int)at->span[1]; k++) {
		double y = y_of(at, at->low[1] + k);
		line(at, panel->level ? guide : grid, at->left, y, right, y);
		tick(at, at->left - 5, y + 3.5, "end", at->low[1] + k);
	}
	for (int k = 0; k <= (int)at->span[0]; k++) {
		double x = x_of(at, at->low[0] + k);
		line(at, grid, x, at->top, x, bottom);
		tick(at, x, bottom + 14, "middle", at->low[0] + k);
	}
	// Linear growth: one decade up for each to the right, cut at the frame.
	for (int k = -(int)at->span[0]; !panel->level && k <= (int)at->span[1]; k++) {
		double from = fmax(0, -k), to = fmin(at->span[0], at->span[1] - k);
		if (from < to)
			line(at, guide, x_of(at, at->low[0] + from), y_of(at, at->low[1] + k + from),
				x_of(at, at->low[0] + to), y_of(at, at->low[1] + k + to));
	}
	fprintf(at->f,
		"<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n"
		"<text class=\"h\" x=\"%.1f\" y=\"%.1f\">%s</text>\n"
		"<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
		at->left, at->top, WIDTH, HEIGHT, at->left, at->top - 8, panel->title, at->left + WIDTH / 2.0,
		bottom + 28, p->x_name);
}

static void draw_line(const struct frame *at, const double *x, const struct plot_line *l)
{
	const char *colour = colour_of(l);
	fprintf(at->f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"%s points=\"", colour,
		l->dashed ? " stroke-dasharray=\"6 3\"" : "");
	for (int i = 0; i < PLOT_POINTS; i++) {
		if (l->y[i] > 0 && x[i] > 0)
			fprintf(at->f, "%.1f,%.1f ", x_of(at, log10(x[i])), y_of(at, log10(l->y[i])));
	}
	fprintf(at->f, "\"/>\n");
	for (int i = 0; i < PLOT_POINTS; i++) {
		if (l->y[i] > 0 && x[i] > 0)
			fprintf(at->f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\" fill=\"%s\"/>\n",
				x_of(at, log10(x[i])), y_of(at, log10(l->y[i])), colour);
	}
}

static int by_height(const void *a, const void *b)
{
	double x = ((const struct label *)a)->y, y = ((const struct label *)b)->y;
	return (x > y) - (x < y);
}

// Each line's name at its end, pushed apart where they would overlap: first downwards, then up from the bottom.
static void draw_labels(const struct frame *at, const struct plot_panel *panel)
{
	struct label label[PLOT_LINES];
	int n = 0;
	for (int i = 0; i < panel->lines; i++) {
		int last = last_point(panel->line[i].y);
		if (last >= 0)
			label[n++] = (struct label){
				.y = y_of(at, log10(panel->line[i].y[last])),
				.line = &panel->line[i],
			};
	}
	qsort(label, (size_t)n, sizeof *label, by_height);
	for (int i = 1; i < n; i++)
		label[i].y = fmax(label[i].y, label[i - 1].y + LABEL_GAP);
	for (int i = n - 1; i >= 0; i--)
		label[i].y = fmin(label[i].y, at->top + HEIGHT - LABEL_GAP * (n - 1 - i));
	for (int i = 0; i < n; i++) {
		const struct plot_line *l = label[i].line;
		double growth = plot_growth(panel->x, l->y);
		fprintf(at->f, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" style=\"fill:%s%s\">%s", at->left + WIDTH + 6,
			label[i].y + 3.5, colour_of(l), l->marked ? ";font-weight:bold" : "", l->name);
		if (growth > 0)
			fprintf(at->f, " x%.*f", growth < 9.95 ? 1 : 0, growth);
		fprintf(at->f, "</text>\n");
	}
}

static void draw_panel(FILE *f, const struct plot *p, int i)
{
	const struct plot_panel *panel = &p->panel[i];
	struct frame at = {
		.f = f,
		.left = LEFT + i % p->columns * (LEFT + WIDTH + RIGHT),
		.top = HEADER + TOP + i / p->columns * (TOP + HEIGHT + BOTTOM),
	};
	frame_scale(&at, p, panel);
	draw_axes(&at, p, panel);
	for (int k = 0; k < panel->lines; k++)
		draw_line(&at, panel->x, &panel->line[k]);
	draw_labels(&at, panel);
}

int plot_write(const char *path, const struct plot *p)
{
	int rows = (p->panels + p->columns - 1) / p->columns;
	int width = p->columns * (LEFT + WIDTH + RIGHT), height = HEADER + rows * (TOP + HEIGHT + BOTTOM);
	FILE *f = fopen(path, "we");
	if (!f)
		return -errno;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
		"<style>text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#333}.t{font-size:11px}"
		".h{font-weight:bold}.b{font-size:18px;font-weight:bold}</style>\n"
		"<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
		"<text class=\"b\" x=\"%d\" y=\"26\">%s</text>\n<text x=\"%d\" y=\"46\">%s</text>\n",
		width, height, width, height, width, height, LEFT, p->title, LEFT, p->note);
	for (int i = 0; i < p->panels; i++)
		draw_panel(f, p, i);
	fprintf(f, "</svg>\n");
	bool failed = ferror(f) != 0;
	return fclose(f) != 0 || failed ? -EIO : 0;
}
