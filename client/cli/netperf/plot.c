/* plot.c - the picture of remote-gpu netperf: two charts with logarithmic axes, written as plain SVG. */
#include "client/cli/netperf/netperf.h"

#include <math.h>

enum { WIDTH = 860, CHART_WIDTH = 330, CHART_HEIGHT = 300, TOP = 60, LEFT = 70, SECOND = 430 };

static const char *const colours[] = {"#7f7f7f", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};
#define N_COLOURS (sizeof colours / sizeof *colours)

struct chart {
    const struct rg_netperf *all;
    const char *title;
    double (*value)(const struct rg_netperf_point *);
    int left;
    double size_low, size_high, low, high; /* ranges, as logarithms */
};

static double round_trip(const struct rg_netperf_point *point)
{
    return point->latency.p50_us;
}

/* Of both directions the slower: what a program that uses both can count on. */
static double bandwidth(const struct rg_netperf_point *point)
{
    const struct rg_bandwidth *b = &point->bandwidth;
    return (b->to_server < b->from_server ? b->to_server : b->from_server) / 1e6;
}

static void find_ranges(struct chart *chart)
{
    chart->size_low = chart->low = INFINITY;
    chart->size_high = chart->high = -INFINITY;
    for (unsigned i = 0; i < chart->all->n; i++)
        for (unsigned j = 0; j < chart->all->links[i].n; j++) {
            const struct rg_netperf_point *point = &chart->all->links[i].points[j];
            if (chart->value(point) <= 0)
                continue; /* it could not be had */
            double size = log2((double)point->size), value = log10(chart->value(point));
            chart->size_low = fmin(chart->size_low, size);
            chart->size_high = fmax(chart->size_high, size);
            chart->low = fmin(chart->low, floor(value));
            chart->high = fmax(chart->high, ceil(value));
        }
    if (chart->low == INFINITY)
        chart->low = chart->size_low = 0, chart->high = chart->size_high = 1;
    if (chart->high <= chart->low)
        chart->high = chart->low + 1;
    if (chart->size_high <= chart->size_low)
        chart->size_high = chart->size_low + 1;
}

static double x_of(const struct chart *chart, double size)
{
    return chart->left + (size - chart->size_low) / (chart->size_high - chart->size_low) * CHART_WIDTH;
}

static double y_of(const struct chart *chart, double value)
{
    return TOP + CHART_HEIGHT - (value - chart->low) / (chart->high - chart->low) * CHART_HEIGHT;
}

static void draw_axes(const struct chart *chart, FILE *out)
{
    fprintf(out, "<text x='%d' y='%d' font-weight='bold'>%s</text>\n", chart->left, TOP - 14, chart->title);
    for (double value = chart->low; value <= chart->high; value++) {
        double y = y_of(chart, value);
        fprintf(out, "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/>", chart->left, y,
                chart->left + CHART_WIDTH, y);
        fprintf(out, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", chart->left - 6, y + 4,
                pow(10, value));
    }
    for (double size = chart->size_low; size <= chart->size_high; size += 4) {
        char text[16];
        double x = x_of(chart, size);
        fprintf(out, "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#eee'/>", x, TOP, x,
                TOP + CHART_HEIGHT);
        fprintf(out, "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n", x, TOP + CHART_HEIGHT + 16,
                rg_netperf_size((size_t)exp2(size), text));
    }
}

static void draw(struct chart chart, FILE *out)
{
    find_ranges(&chart);
    draw_axes(&chart, out);
    for (unsigned i = 0; i < chart.all->n; i++) {
        const struct rg_netperf_link *link = &chart.all->links[i];
        if (link->n == 0)
            continue;
        fprintf(out, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colours[i % N_COLOURS]);
        for (unsigned j = 0; j < link->n; j++)
            if (chart.value(&link->points[j]) > 0)
                fprintf(out, "%.1f,%.1f ", x_of(&chart, log2((double)link->points[j].size)),
                        y_of(&chart, log10(chart.value(&link->points[j]))));
        fprintf(out, "'/>\n");
    }
}

/* Names come from the server: what would be markup is left out. */
static void text(const char *from, FILE *out)
{
    for (; *from; from++)
        if (*from != '<' && *from != '>' && *from != '&')
            fputc(*from, out);
}

bool rg_netperf_plot(const struct rg_netperf *all, FILE *out)
{
    int height = TOP + CHART_HEIGHT + 50 + 18 * (int)all->n;
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' "
            "font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n<text x='%d' y='24' "
            "font-size='16'>",
            WIDTH, height, LEFT);
    text("The way to ", out);
    text(all->server, out);
    fprintf(out, "</text>\n");
    draw(
        (struct chart){
            .all = all, .title = "round trip, median, microseconds", .value = round_trip, .left = LEFT},
        out);
    draw((struct chart){.all = all,
                        .title = "bandwidth, the slower direction, MB/s",
                        .value = bandwidth,
                        .left = LEFT + SECOND},
         out);
    for (unsigned i = 0; i < all->n; i++) {
        int y = TOP + CHART_HEIGHT + 46 + 18 * (int)i;
        fprintf(out, "<rect x='%d' y='%d' width='16' height='4' fill='%s'/><text x='%d' y='%d'>", LEFT, y - 6,
                colours[i % N_COLOURS], LEFT + 24, y);
        text(all->links[i].name, out);
        if (all->links[i].failed[0])
            fprintf(out, " (not measured)");
        fprintf(out, "</text>\n");
    }
    fprintf(out, "</svg>\n");
    return fflush(out) == 0 && !ferror(out);
}
