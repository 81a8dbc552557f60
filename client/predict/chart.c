/* chart.c - see chart.h. */
#include "client/predict/chart.h"

#include <math.h>

enum { WIDTH = 820, HEIGHT = 520, LEFT = 80, TOP = 60, RIGHT = 170, BOTTOM = 60 };

static const char *const colours[] = {"#d62728", "#ff7f0e", "#2ca02c", "#1f77b4", "#9467bd", "#7f7f7f"};
#define N_COLOURS (sizeof colours / sizeof *colours)

/* Axes: logarithms of both. */
struct axes {
    double low_x, high_x, low_y, high_y;
};

static double x_of(const struct axes *axes, double rtt_us)
{
    return LEFT + (log10(rtt_us) - axes->low_x) / (axes->high_x - axes->low_x) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct axes *axes, double slow_down)
{
    const double y = (log10(fmax(slow_down, 1e-3)) - axes->low_y) / (axes->high_y - axes->low_y);
    return HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM);
}

/* What is not plain text is left out: names come from the trace. */
static void text(const char *from, FILE *out)
{
    for (; *from; from++)
        if (*from != '<' && *from != '>' && *from != '&')
            fputc(*from, out);
}

static struct axes find_axes(const struct rg_chart *chart)
{
    struct axes axes = {log10(chart->rtts_us[0]), log10(chart->rtts_us[chart->n_rtts - 1]), 0, 0.3};
    for (size_t i = 0; i < chart->n_rtts * chart->n_bandwidths; i++) {
        axes.high_y = fmax(axes.high_y, log10(chart->slow_downs[i]) * 1.05);
        axes.low_y = fmin(axes.low_y, log10(chart->slow_downs[i]));
    }
    for (size_t i = 0; i < chart->n_marks; i++)
        axes.low_x = fmin(axes.low_x, log10(chart->marks[i].rtt_us));
    return axes;
}

static void draw_axes(const struct rg_chart *chart, const struct axes *axes, FILE *out)
{
    static const double steps[] = {1, 1.2, 1.5, 2, 3, 5, 7};
    for (int power = 0; power < 6; power++)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            const double value = steps[i] * pow(10, power);
            if (log10(value) > axes->high_y || (axes->high_y > 1.2 && steps[i] != 1 && steps[i] != 3))
                continue;
            const double y = y_of(axes, value);
            fprintf(out,
                    "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/><text x='%d' y='%.1f' "
                    "text-anchor='end'>%g</text>\n",
                    LEFT, y, WIDTH - RIGHT, y, LEFT - 8, y + 4, value);
        }
    for (double power = ceil(axes->low_x); power <= axes->high_x + 1e-9; power++) {
        const double x = x_of(axes, pow(10, power)), value = pow(10, power);
        fprintf(out,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#eee'/><text x='%.1f' y='%d' "
                "text-anchor='middle'>%g %s</text>\n",
                x, TOP, x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18, value >= 1000 ? value / 1000 : value,
                value >= 1000 ? "ms" : "µs");
    }
    fprintf(out, "<text x='%d' y='%d' text-anchor='middle'>round-trip time</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 42);
    fprintf(out, "<text x='%d' y='24' font-size='16'>", LEFT);
    text(chart->program, out);
    fprintf(out, ": slow-down against the recorded run of %.3g s</text>\n", chart->seconds);
}

static void draw_lines(const struct rg_chart *chart, const struct axes *axes, FILE *out)
{
    for (size_t i = 0; i < chart->n_bandwidths; i++) {
        const char *colour = colours[i % N_COLOURS];
        fprintf(out, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colour);
        for (size_t j = 0; j < chart->n_rtts; j++)
            fprintf(out, "%.1f,%.1f ", x_of(axes, chart->rtts_us[j]),
                    y_of(axes, chart->slow_downs[i * chart->n_rtts + j]));
        fprintf(out, "'/>\n<rect x='%d' y='%d' width='18' height='4' fill='%s'/><text x='%d' y='%d'>",
                WIDTH - RIGHT + 14, TOP + 20 * (int)i, colour, WIDTH - RIGHT + 38, TOP + 6 + 20 * (int)i);
        text(chart->bandwidths[i], out);
        fprintf(out, "</text>\n");
    }
}

static void draw_marks(const struct rg_chart *chart, const struct axes *axes, FILE *out)
{
    for (size_t i = 0; i < chart->n_marks; i++) {
        const double x = x_of(axes, chart->marks[i].rtt_us), y = y_of(axes, chart->marks[i].slow_down);
        const int legend = TOP + 20 * (int)(chart->n_bandwidths + 1 + i);
        fprintf(out, "<circle cx='%.1f' cy='%.1f' r='5' fill='black'/><text x='%.1f' y='%.1f'>%zu</text>\n",
                x, y, x + 7, y - 7, i + 1);
        fprintf(out, "<text x='%d' y='%d'>%zu: ", WIDTH - RIGHT + 14, legend, i + 1);
        text(chart->marks[i].name, out);
        fprintf(out, "</text>\n");
    }
}

bool rg_chart_write(const struct rg_chart *chart, FILE *out)
{
    const struct axes axes = find_axes(chart);
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' "
            "font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
            WIDTH, HEIGHT);
    draw_axes(chart, &axes, out);
    draw_lines(chart, &axes, out);
    draw_marks(chart, &axes, out);
    fprintf(out, "</svg>\n");
    return fflush(out) == 0 && !ferror(out);
}
