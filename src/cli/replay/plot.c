/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c: hit rate over capacity, as SVG. */
#include "cli/replay/trace.h"

enum {
    WIDTH = 640,
    HEIGHT = 400,
    LEFT = 60,
    RIGHT = 110,
    TOP = 20,
    BOTTOM = 50,
    TICKS = 5,
};

static double x_of(double share, double x_max)
{
    return LEFT + share / x_max * (WIDTH - LEFT - RIGHT);
}

static double y_of(double share, double y_max)
{
    return HEIGHT - BOTTOM - share / y_max * (HEIGHT - TOP - BOTTOM);
}

static void axes(FILE *out, double x_max, double y_max)
{
    for (int i = 0; i <= TICKS; i++) {
        double x = x_of(x_max * i / TICKS, x_max), y = y_of(y_max * i / TICKS, y_max);

        fprintf(out, "<path d='M%d %.1fH%d' stroke='#ddd'/>\n", LEFT, y, WIDTH - RIGHT);
        fprintf(out, "<text x='%d' y='%.1f' text-anchor='end'>%.0f %%</text>\n", LEFT - 6, y + 4,
                100 * y_max * i / TICKS);
        fprintf(out, "<text x='%.1f' y='%d' text-anchor='middle'>%.0f %%</text>\n", x, HEIGHT - BOTTOM + 18,
                100 * x_max * i / TICKS);
    }
    fprintf(out, "<text x='%d' y='%d' text-anchor='middle'>capacity, of the trace's pages</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
    fprintf(out, "<text transform='translate(14 %d) rotate(-90)' text-anchor='middle'>hits</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2);
}

static void draw(FILE *out, const struct pst_curve *c, const char *colour, double x_max, double y_max)
{
    fprintf(out, "<path fill='none' stroke-width='2' stroke='%s' d='", colour);
    for (uint32_t i = 0; i < c->count; i++)
        fprintf(out, "%s%.1f %.1f", i ? "L" : "M", x_of(c->x[i], x_max), y_of(c->y[i], y_max));
    fprintf(out, "'/>\n");
    for (uint32_t i = 0; i < c->count; i++)
        fprintf(out, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/>\n", x_of(c->x[i], x_max),
                y_of(c->y[i], y_max), colour);
}

int pst_plot_write(const char *path, const struct pst_curve *curves, uint32_t count)
{
    static const char *const colours[] = {"#555", "#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e"};
    double x_max = 0, y_max = 0;
    int failed;
    FILE *out = fopen(path, "we");

    if (!out)
        return -errno;
    for (uint32_t c = 0; c < count; c++) {
        for (uint32_t i = 0; i < curves[c].count; i++) {
            x_max = curves[c].x[i] > x_max ? curves[c].x[i] : x_max;
            y_max = curves[c].y[i] > y_max ? curves[c].y[i] : y_max;
        }
    }
    y_max = y_max > 0 ? y_max : 1;
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif'"
            " font-size='12'>\n<rect width='%d' height='%d' fill='white'/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    axes(out, x_max, y_max);
    for (uint32_t c = 0; c < count; c++) {
        const char *colour = colours[c % pst_count_of(colours)];

        draw(out, &curves[c], colour, x_max, y_max);
        fprintf(out, "<text x='%d' y='%d' fill='%s'>%s</text>\n", WIDTH - RIGHT + 12, TOP + 12 + 18 * (int)c,
                colour, curves[c].name);
    }
    fprintf(out, "</svg>\n");
    failed = ferror(out);
    return fclose(out) == 0 && !failed ? 0 : -EIO;
}
