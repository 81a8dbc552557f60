/*
 * video.c - the video instructions, each form on values at the ends of its types, compared with their
 * definition: a number that is wide enough, saturated, then a second operation or a merge; and lane by lane.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

typedef __int128 wide;

static const uint32_t values[] = {0,          1,          0xffffffff, 0x7fffffff, 0x80000000,
                                  0x80017ffe, 0x007f80ff, 0x12345678, 0xfedcba98, 31,
                                  32,         33,         0xffff8000, 0x7f80017f};
#define VALUES  ((uint32_t)(sizeof(values) / sizeof(values[0])))
#define THREADS 64u
#define COUNT   ((VALUES * VALUES * VALUES + THREADS - 1) / THREADS * THREADS)

static uint32_t in[COUNT][3], out[COUNT];

/* Runs `instruction` with %r1, %r2, %r3 of all combinations of values; the result is %r0, before %r3. */
static void run_all(const char *instruction)
{
    char *text = NULL;
    for (uint32_t i = 0; i < COUNT; i++) {
        in[i][0] = values[i % VALUES];
        in[i][1] = values[i / VALUES % VALUES];
        in[i][2] = values[i / VALUES / VALUES % VALUES];
    }
    cr_assert(
        asprintf(
            &text,
            ".visible .entry k(.param .u64 pin, .param .u64 pout) {\n.reg .b64 %%in, %%out; .reg .b32 %%t, "
            "%%r<4>;\n"
            "ld.param.u64 %%in, [pin]; ld.param.u64 %%out, [pout]; mov.u32 %%t, %%tid.x; mov.u32 %%r0, "
            "%%ctaid.x; mad.lo.u32 %%t, %%r0, %u, %%t;\n"
            "mad.wide.u32 %%in, %%t, 12, %%in; ld.global.u32 %%r1, [%%in]; ld.global.u32 %%r2, [%%in+4]; "
            "ld.global.u32 %%r3, [%%in+8]; mov.u32 %%r0, %%r3;\n%s\n"
            "mad.wide.u32 %%out, %%t, 4, %%out; st.global.u32 [%%out], %%r0; ret;\n}\n",
            THREADS, instruction) > 0);
    run_grid_of(text, COUNT / THREADS, THREADS, PARAMS(in, out));
    free(text);
}

/* --- the definition --- */

static wide part(uint32_t word, const char *selector, bool is_signed)
{
    unsigned bits = selector[0] == '\0' ? 32 : selector[1] == 'b' ? 8 : 16;
    unsigned first = selector[0] == '\0' ? 0 : (unsigned)(selector[2] - '0') * bits;
    uint32_t value = bits == 32 ? word : word >> first & ((1u << bits) - 1);
    if (is_signed && (value >> (bits - 1) & 1) != 0)
        return (wide)value - ((wide)1 << bits);
    return value;
}

static wide saturated(wide value, unsigned bits, bool is_signed)
{
    wide top = is_signed ? ((wide)1 << (bits - 1)) - 1 : ((wide)1 << bits) - 1,
         bottom = is_signed ? -top - 1 : 0;
    return value > top ? top : value < bottom ? bottom : value;
}

static wide shifted_left(wide value, unsigned by)
{
    for (unsigned i = 0; i < by; i++)
        value *= 2;
    return value;
}

/* Towards minus infinity. */
static wide shifted_right(wide value, unsigned by)
{
    for (unsigned i = 0; i < by; i++)
        value = value >= 0 ? value / 2 : -((1 - value) / 2);
    return value;
}

static wide computed(const char *operation, wide a, wide b)
{
    if (strncmp(operation, "vadd", 4) == 0)
        return a + b;
    if (strncmp(operation, "vsub", 4) == 0)
        return a - b;
    if (strncmp(operation, "vabsdiff", 8) == 0)
        return a > b ? a - b : b - a;
    if (strncmp(operation, "vmin", 4) == 0)
        return a < b ? a : b;
    if (strncmp(operation, "vmax", 4) == 0)
        return a > b ? a : b;
    if (strncmp(operation, "vavrg", 5) == 0)
        return shifted_right(a + b + (a + b >= 0), 1);
    if (strstr(operation, ".eq") != NULL)
        return a == b;
    if (strstr(operation, ".ne") != NULL)
        return a != b;
    if (strstr(operation, ".lt") != NULL)
        return a < b;
    if (strstr(operation, ".le") != NULL)
        return a <= b;
    return strstr(operation, ".gt") != NULL ? a > b : a >= b;
}

struct form {
    const char *operation, *types; /* types: of d, a, b; a letter each */
    bool sat;
    const char *second, *d, *a, *b; /* ".add" …, selectors with their dot */
};

static bool is_signed(const struct form *form, int i)
{
    return form->types[i] == 's';
}

static void check(const struct form *form, const char *instruction, const wide *result, uint32_t i)
{
    bool to_signed = is_signed(form, 0);
    wide value = *result, c = part(in[i][2], "", to_signed);
    unsigned bits = form->d[0] == '\0' ? 32 : form->d[1] == 'b' ? 8 : 16;
    if (form->sat)
        value = saturated(value, bits, to_signed);
    if (strcmp(form->second, ".add") == 0)
        value += c;
    else if (strcmp(form->second, ".min") == 0)
        value = value < c ? value : c;
    else if (strcmp(form->second, ".max") == 0)
        value = value > c ? value : c;
    uint32_t wanted = (uint32_t)value;
    if (bits != 32) {
        unsigned first = (unsigned)(form->d[2] - '0') * bits;
        uint32_t mask = ((1u << bits) - 1) << first;
        wanted = (wanted << first & mask) | (in[i][2] & ~mask);
    }
    cr_assert_eq(out[i], wanted, "%s of %#x, %#x, %#x: %#x, not %#x", instruction, in[i][0], in[i][1],
                 in[i][2], out[i], wanted);
}

static const char *type_name(const struct form *form, int i)
{
    return is_signed(form, i) ? ".s32" : ".u32";
}

static void run_form(const struct form *form)
{
    char instruction[160];
    bool third = form->second[0] != '\0' || form->d[0] != '\0',
         set = strncmp(form->operation, "vset", 4) == 0;
    const char *compare = set ? form->operation + 4 : "";
    snprintf(instruction, sizeof(instruction), "%.*s%s%s%s%s%s%s %%r0%s, %%r1%s, %%r2%s%s;",
             set ? 4 : (int)strlen(form->operation), form->operation, set ? "" : type_name(form, 0),
             type_name(form, 1), type_name(form, 2), form->sat ? ".sat" : "", compare, form->second, form->d,
             form->a, form->b, third ? ", %r3" : "");
    run_all(instruction);
    for (uint32_t i = 0; i < COUNT; i++) {
        wide result = computed(form->operation, part(in[i][0], form->a, is_signed(form, 1)),
                               part(in[i][1], form->b, is_signed(form, 2)));
        check(form, instruction, &result, i);
    }
}

Test(video, one_value)
{
    static const char *const operations[] = {"vadd", "vsub", "vabsdiff", "vmin", "vmax"};
    static const struct form forms[] = {
        {"", "uuu", false, "", "", "", ""},        {"", "sss", true, "", "", "", ""},
        {"", "usu", true, "", "", ".b0", ".h1"},   {"", "sus", true, ".add", "", "", ".b3"},
        {"", "uus", false, ".min", "", ".h0", ""}, {"", "ssu", true, ".max", "", "", ".b1"},
        {"", "uuu", false, ".max", "", "", ""},    {"", "sss", true, "", ".b2", "", ".b2"},
        {"", "uss", true, "", ".h1", ".h1", ""},   {"", "usu", false, "", ".b0", ".b3", ""},
        {"", "ssu", false, "", ".h0", "", ""},     {"", "sss", false, ".min", "", ".b2", ".b1"},
    };
    for (size_t o = 0; o < sizeof(operations) / sizeof(operations[0]); o++)
        for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
            struct form form = forms[f];
            form.operation = operations[o];
            run_form(&form);
        }
}

Test(video, comparisons)
{
    static const struct form forms[] = {
        {"vset.eq", "uuu", false, "", "", "", ""},        {"vset.ne", "usu", false, "", "", ".b1", ""},
        {"vset.lt", "uss", false, ".add", "", "", ".h1"}, {"vset.le", "uus", false, "", ".b3", "", ""},
        {"vset.gt", "usu", false, ".min", "", "", ""},    {"vset.ge", "uuu", false, "", ".h0", ".b0", ".b1"},
        {"vset.lt", "usu", false, ".max", "", "", ""},
    };
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
        run_form(&forms[f]);
}

Test(video, shifts)
{
    static const struct form forms[] = {
        {"vshl", "uuu", false, "", "", "", ""},      {"vshl", "ssu", true, "", "", "", ""},
        {"vshl", "uuu", true, ".add", "", "", ""},   {"vshl", "usu", true, "", ".h1", ".b1", ".b0"},
        {"vshr", "uuu", false, "", "", "", ""},      {"vshr", "ssu", false, ".min", "", "", ""},
        {"vshr", "usu", true, "", ".b2", "", ".b0"}, {"vshr", "suu", true, "", "", ".h1", ".b0"},
    };
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
        for (int wrap = 0; wrap < 2; wrap++) {
            const struct form *form = &forms[f];
            char instruction[160];
            bool third = form->second[0] != '\0' || form->d[0] != '\0';
            snprintf(instruction, sizeof(instruction), "%s%s%s.u32%s%s%s %%r0%s, %%r1%s, %%r2%s%s;",
                     form->operation, type_name(form, 0), type_name(form, 1), form->sat ? ".sat" : "",
                     wrap ? ".wrap" : ".clamp", form->second, form->d, form->a, form->b,
                     third ? ", %r3" : "");
            run_all(instruction);
            for (uint32_t i = 0; i < COUNT; i++) {
                wide a = part(in[i][0], form->a, is_signed(form, 1)), b = part(in[i][1], form->b, false);
                unsigned by = wrap ? (unsigned)(b % 32) : b > 32 ? 32 : (unsigned)b;
                wide result = form->operation[3] == 'l' ? shifted_left(a, by) : shifted_right(a, by);
                check(form, instruction, &result, i);
            }
        }
}

Test(video, multiply_and_add)
{
    static const struct {
        const char *types, *scale;
        bool sat, plus_one;
        const char *a, *b;
        int sign_a, sign_b, sign_c;
    } forms[] = {
        {"uuu", "", false, false, "", "", 1, 1, 1},
        {"sss", "", true, false, "", "", 1, 1, 1},
        {"uuu", "", true, false, "", "", 1, 1, 1},
        {"ssu", ".shr7", true, false, ".h0", "", 1, 1, 1},
        {"uuu", ".shr15", true, true, "", "", 1, 1, 1},
        {"sss", ".shr15", false, true, ".b1", ".h1", 1, 1, 1},
        {"suu", "", true, false, "", "", -1, 1, 1},
        {"sus", ".shr7", true, false, "", ".b3", 1, -1, 1},
        {"suu", ".shr15", true, false, "", "", 1, 1, -1},
        {"sss", "", true, false, ".b0", ".b0", -1, -1, -1},
        {"uuu", ".shr7", false, false, ".h1", ".h0", 1, 1, 1},
    };
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
        char instruction[160], types[16] = "";
        for (int i = 0; i < 3; i++)
            strcat(types, forms[f].types[i] == 's' ? ".s32" : ".u32");
        snprintf(instruction, sizeof(instruction), "vmad%s%s%s%s %%r0, %s%%r1%s, %s%%r2%s, %s%%r3;", types,
                 forms[f].plus_one ? ".po" : "", forms[f].sat ? ".sat" : "", forms[f].scale,
                 forms[f].sign_a < 0 ? "-" : "", forms[f].a, forms[f].sign_b < 0 ? "-" : "", forms[f].b,
                 forms[f].sign_c < 0 ? "-" : "");
        run_all(instruction);
        bool any = forms[f].types[1] == 's' || forms[f].types[2] == 's' ||
                   forms[f].sign_a != forms[f].sign_b || forms[f].sign_c < 0;
        for (uint32_t i = 0; i < COUNT; i++) {
            wide a = part(in[i][0], forms[f].a, forms[f].types[1] == 's'),
                 b = part(in[i][1], forms[f].b, forms[f].types[2] == 's'), c = part(in[i][2], "", any);
            wide sum = forms[f].sign_a * forms[f].sign_b * a * b + forms[f].sign_c * c + forms[f].plus_one;
            sum = shifted_right(sum, forms[f].scale[0] == '\0' ? 0 : forms[f].scale[4] == '7' ? 7 : 15);
            if (forms[f].sat)
                sum = saturated(sum, 32, any);
            cr_assert_eq(out[i], (uint32_t)sum, "%s of %#x, %#x, %#x: %#x, not %#x", instruction, in[i][0],
                         in[i][1], in[i][2], out[i], (uint32_t)sum);
        }
    }
}

/* --- lanes --- */

/* Lane i of the two words, by a selector like .b7610. */
static wide lane(const uint32_t words[2], unsigned lanes, unsigned i, const char *selector, unsigned first,
                 bool to_signed)
{
    unsigned choice = selector[0] == '\0' ? first + i : (unsigned)(selector[1 + lanes - i] - '0'),
             bits = 32 / lanes;
    char name[4] = {'.', lanes == 2 ? 'h' : 'b', (char)('0' + choice % lanes), '\0'};
    (void)bits;
    return part(words[choice / lanes], name, to_signed);
}

static void run_lanes(const struct form *form, unsigned lanes)
{
    char instruction[160];
    bool set = strncmp(form->operation, "vset", 4) == 0;
    unsigned bits = 32 / lanes;
    snprintf(instruction, sizeof(instruction), "%.*s%u%s%s%s%s%s%s %%r0%s, %%r1%s, %%r2%s, %%r3;",
             set ? 4 : (int)strlen(form->operation), form->operation, lanes, set ? "" : type_name(form, 0),
             type_name(form, 1), type_name(form, 2), form->sat ? ".sat" : "", set ? form->operation + 4 : "",
             form->second, form->d, form->a, form->b);
    run_all(instruction);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t sum = in[i][2], packed = 0;
        for (unsigned n = 0; n < lanes; n++) {
            uint32_t mask = ((1u << bits) - 1) << (n * bits);
            if (form->d[0] != '\0' && strchr(form->d + 2, (char)('0' + n)) == NULL) {
                packed |= in[i][2] & mask;
                continue;
            }
            wide value = computed(form->operation, lane(in[i], lanes, n, form->a, 0, is_signed(form, 1)),
                                  lane(in[i], lanes, n, form->b, lanes, is_signed(form, 2)));
            if (form->sat)
                value = saturated(value, bits, is_signed(form, 0));
            sum += (uint32_t)value;
            packed |= (uint32_t)value << (n * bits) & mask;
        }
        uint32_t wanted = form->second[0] != '\0' ? sum : packed;
        cr_assert_eq(out[i], wanted, "%s of %#x, %#x, %#x: %#x, not %#x", instruction, in[i][0], in[i][1],
                     in[i][2], out[i], wanted);
    }
}

Test(video, lanes)
{
    static const char *const operations[] = {"vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"};
    static const struct form halves[] = {{"", "uuu", false, "", "", "", ""},
                                         {"", "sus", true, "", ".h1", ".h31", ".h20"},
                                         {"", "usu", true, ".add", ".h0", "", ".h00"},
                                         {"", "sss", false, ".add", "", ".h23", ""}};
    static const struct form bytes[] = {{"", "uuu", true, "", "", "", ""},
                                        {"", "sus", false, "", ".b310", ".b7531", ".b0246"},
                                        {"", "usu", true, ".add", ".b20", "", ".b3333"},
                                        {"", "sss", true, "", ".b2", ".b4567", ""}};
    for (size_t o = 0; o < sizeof(operations) / sizeof(operations[0]); o++)
        for (size_t f = 0; f < 4; f++) {
            struct form form = halves[f];
            form.operation = operations[o];
            run_lanes(&form, 2);
            form = bytes[f];
            form.operation = operations[o];
            run_lanes(&form, 4);
        }
    static const struct form sets[] = {{"vset.lt", "uus", false, "", "", "", ""},
                                       {"vset.ge", "usu", false, ".add", ".h1", ".h12", ""},
                                       {"vset.ne", "uss", false, "", ".h0", "", ".h33"}};
    for (size_t f = 0; f < sizeof(sets) / sizeof(sets[0]); f++)
        run_lanes(&sets[f], 2);
    const struct form four = {"vset.le", "uus", false, "", ".b30", ".b1735", ""};
    run_lanes(&four, 4);
}
