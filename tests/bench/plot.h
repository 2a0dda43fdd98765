// SPDX-License-Identifier: Apache-2.0
// plot: small log-log panels side by side in one SVG file. Values, nothing to free; text must need no escaping in XML.
#ifndef CELLD_TESTS_BENCH_PLOT_H
#define CELLD_TESTS_BENCH_PLOT_H

#include <stdbool.h>

enum { PLOT_POINTS = 4, PLOT_LINES = 8 };

struct plot_line {
	const char *name;
	int colour;            // lines of one colour belong together
	bool dashed;           // and this tells them apart
	bool marked;           // its name is bold
	double y[PLOT_POINTS]; // at the panel's x; what is not above 0 is no point
};

struct plot_panel {
	const char *title;
	double x[PLOT_POINTS]; // growing; what is not above 0 is no point
	bool level;            // guides are level lines (what should not grow), else lines of linear growth
	struct plot_line line[PLOT_LINES];
	int lines;
};

struct plot {
	const char *title, *note, *x_name;
	double from, to; // of all panels' x axes
	const struct plot_panel *panel;
	int panels, columns;
};

// What ten times as many cost, by the last two points; 0 if there are not two.
double plot_growth(const double *x, const double *y);
// Writes PATH anew. 0 or negative errno.
int plot_write(const char *path, const struct plot *p);

#endif
