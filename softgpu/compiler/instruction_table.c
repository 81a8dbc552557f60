/*
 * instruction_table.c - the instruction table as data. See instruction.h for the notation. Rows of one base
 * stand together; the first row whose modifiers and number of operands fit is taken.
 */
#include "softgpu/compiler/instruction.h"

#define INT      "T:u16,s16,u32,s32,u64,s64"
#define INT3264  "T:u32,s32,u64,s64"
#define BITS     "T:b16,b32,b64"
#define HALF     "T:f16,f16x2,bf16,bf16x2"
#define MEMORY   "T:b8,b16,b32,b64,b128,u8,u16,u32,u64,s8,s16,s32,s64,f16,f16x2,bf16,bf16x2,f32,f64"
#define PLAIN    "u8,u16,u32,u64,s8,s16,s32,s64,f16,f32,f64"
#define FRAGMENT "f16,bf16,tf32,f32,f64,s8,u8,s4,u4,b1,s32"
#define COMPARE  "T:b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64,f16,bf16"

#define ROW(b, o, m, a)                                                                                      \
    {                                                                                                        \
        .base = (b), .op = SG_OP_##o, .modifiers = (m), .operands = (a)                                      \
    }

// clang-format off
struct sg_form sg_form_table[] = {
    /* --- add, sub --- */
    ROW("add", ADD, "T:u16,s16,u32,s32,u64,s64,u16x2,s16x2", "=0 0 0"),
    ROW("add", ADD, "sat! T:s32", "=0 0 0"),
    ROW("add", ADD, "cc! T:u32,s32,u64,s64", "=0 0 0"),
    ROW("add", FADD, "round ftz sat T:f32", "=0 0 0"),
    ROW("add", FADD, "round T:f64", "=0 0 0"),
    ROW("add", FADD, "round ftz sat " HALF, "=0 0 0"),
    ROW("add", FADD, "round ftz T:f32x2", "=0 0 0"),
    ROW("sub", SUB, "T:u16,s16,u32,s32,u64,s64", "=0 0 0"),
    ROW("sub", SUB, "sat! T:s32", "=0 0 0"),
    ROW("sub", SUB, "cc! T:u32,s32,u64,s64", "=0 0 0"),
    ROW("sub", FSUB, "round ftz sat T:f32", "=0 0 0"),
    ROW("sub", FSUB, "round T:f64", "=0 0 0"),
    ROW("sub", FSUB, "round ftz sat " HALF, "=0 0 0"),
    ROW("sub", FSUB, "round ftz T:f32x2", "=0 0 0"),
    ROW("addc", ADDC, "cc " INT3264, "=0 0 0"),
    ROW("subc", SUBC, "cc " INT3264, "=0 0 0"),
    /* --- mul, mad --- */
    ROW("mul", MUL, "wide! " INT, "=wide 0 0"),
    ROW("mul", FMUL, "round ftz sat T:f32", "=0 0 0"),
    ROW("mul", FMUL, "round T:f64", "=0 0 0"),
    ROW("mul", FMUL, "round ftz sat " HALF, "=0 0 0"),
    ROW("mul", FMUL, "round ftz T:f32x2", "=0 0 0"),
    ROW("mad", MAD, "wide! cc " INT, "=wide 0 0 wide"),
    ROW("mad", MAD, "wide! sat! T:s32", "=0 0 0 0"),
    ROW("mad", FMA, "round ftz sat T:f32", "=0 0 0 0"),
    ROW("mad", FMA, "round T:f64", "=0 0 0 0"),
    ROW("madc", MADC, "wide! cc " INT3264, "=0 0 0 0"),
    ROW("fma", FMA, "round! ftz sat T:f32", "=0 0 0 0"),
    ROW("fma", FMA, "round! T:f64", "=0 0 0 0"),
    ROW("fma", FMA, "round! ftz sat relu " HALF, "=0 0 0 0"),
    ROW("fma", FMA, "round! ftz T:f32x2", "=0 0 0 0"),
    ROW("mul24", MUL24, "wide! T:u32,s32", "=0 0 0"),
    ROW("mad24", MAD24, "wide! sat T:u32,s32", "=0 0 0 0"),
    ROW("sad", SAD, INT, "=0 0 0 0"),
    /* --- division and roots --- */
    ROW("div", DIV, INT, "=0 0 0"),
    ROW("div", FDIV, "approx round ftz T:f32", "=0 0 0"),
    ROW("div", FDIV, "round! T:f64", "=0 0 0"),
    ROW("rem", REM, INT, "=0 0 0"),
    ROW("rcp", RCP, "approx round ftz T:f32,f64", "=0 0"),
    ROW("sqrt", SQRT, "approx round ftz T:f32", "=0 0"),
    ROW("sqrt", SQRT, "round! T:f64", "=0 0"),
    ROW("rsqrt", RSQRT, "approx! ftz T:f32,f64", "=0 0"),
    ROW("sin", SIN, "approx! ftz T:f32", "=0 0"),
    ROW("cos", COS, "approx! ftz T:f32", "=0 0"),
    ROW("ex2", EX2, "approx! ftz T:f32,f16,f16x2,bf16,bf16x2", "=0 0"),
    ROW("lg2", LG2, "approx! ftz T:f32", "=0 0"),
    ROW("tanh", TANH, "approx! T:f32,f16,f16x2,bf16,bf16x2", "=0 0"),
    /* --- sign, smaller and larger --- */
    ROW("abs", ABS, "T:s16,s32,s64", "=0 0"),
    ROW("abs", FABS, "ftz T:f32,f64,f16,f16x2,bf16,bf16x2", "=0 0"),
    ROW("neg", NEG, "T:s16,s32,s64", "=0 0"),
    ROW("neg", FNEG, "ftz T:f32,f64,f16,f16x2,bf16,bf16x2", "=0 0"),
    ROW("min", MIN, "T:u16,s16,u32,s32,u64,s64,u16x2,s16x2", "=0 0 0"),
    ROW("min", MIN, "relu! T:s32,s16x2", "=0 0 0"),
    ROW("min", FMIN, "ftz nan xorsign abs T:f32,f64,f16,f16x2,bf16,bf16x2", "=0 0 0"),
    ROW("min", FMIN, "ftz nan abs T:f32", "=0 0 0 0"),
    ROW("max", MAX, "T:u16,s16,u32,s32,u64,s64,u16x2,s16x2", "=0 0 0"),
    ROW("max", MAX, "relu! T:s32,s16x2", "=0 0 0"),
    ROW("max", FMAX, "ftz nan xorsign abs T:f32,f64,f16,f16x2,bf16,bf16x2", "=0 0 0"),
    ROW("max", FMAX, "ftz nan abs T:f32", "=0 0 0 0"),
    ROW("copysign", COPYSIGN, "T:f32,f64", "=0 0 0"),
    ROW("testp", TESTP, "testp! T:f32,f64", "=p 0"),
    /* --- bits --- */
    ROW("popc", POPC, "T:b32,b64", "=u32 0"),
    ROW("clz", CLZ, "T:b32,b64", "=u32 0"),
    ROW("bfind", BFIND, "shiftamt " INT3264, "=u32 0"),
    ROW("brev", BREV, "T:b32,b64", "=0 0"),
    ROW("bfe", BFE, INT3264, "=0 0 u32 u32"),
    ROW("bfi", BFI, "T:b32,b64", "=0 0 0 u32 u32"),
    ROW("bmsk", BMSK, "clamp! T:b32", "=0 u32 u32"),
    ROW("szext", SZEXT, "clamp! T:u32,s32", "=0 0 u32"),
    ROW("fns", FNS, "T:b32", "=0 b32 b32 s32"),
    ROW("dp4a", DP4A, "T:u32,s32 T:u32,s32", "=b32 0 1 b32"),
    ROW("dp2a", DP2A, "wide! T:u32,s32 T:u32,s32", "=b32 0 1 b32"),
    ROW("prmt", PRMT, "prmt T:b32", "=0 0 0 b32"),
    ROW("shf", SHF, "lr! clamp! T:b32", "=0 0 0 u32"),
    ROW("shl", SHL, BITS, "=0 0 u32"),
    ROW("shr", SHR, "T:b16,b32,b64,u16,u32,u64,s16,s32,s64", "=0 0 u32"),
    ROW("and", AND, "T:b16,b32,b64,pred", "=0 0 0"),
    ROW("or", OR, "T:b16,b32,b64,pred", "=0 0 0"),
    ROW("xor", XOR, "T:b16,b32,b64,pred", "=0 0 0"),
    ROW("not", NOT, "T:b16,b32,b64,pred", "=0 0"),
    ROW("cnot", CNOT, BITS, "=0 0"),
    ROW("lop3", LOP3, "T:b32", "=0 0 0 0 u32"),
    ROW("lop3", LOP3, "bool! T:b32", "=0|p 0 0 0 u32 p"),
    /* --- comparison and selection --- */
    ROW("setp", SETP, "cmp! ftz " COMPARE, "=p|p 0 0"),
    ROW("setp", SETP, "cmp! bool! ftz " COMPARE, "=p|p 0 0 p"),
    ROW("setp", SETP, "cmp! ftz T:f16x2,bf16x2", "=p|p 0 0"),
    ROW("setp", SETP, "cmp! bool! ftz T:f16x2,bf16x2", "=p|p 0 0 p"),
    ROW("set", SET, "cmp! ftz T:u32,s32,f32,u16,s16,f16,bf16 " COMPARE, "=0 1 1"),
    ROW("set", SET, "cmp! bool! ftz T:u32,s32,f32,u16,s16,f16,bf16 " COMPARE, "=0 1 1 p"),
    ROW("set", SET, "cmp! ftz T:f16x2,bf16x2,u32,s32 T:f16x2,bf16x2", "=0 1 1"),
    ROW("selp", SELP, "T:b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64", "=0 0 0 p"),
    ROW("slct", SLCT, "ftz T:b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64 T:s32,f32", "=0 0 0 1"),
    /* --- data movement --- */
    ROW("mov", MOV, "T:b16,b32,b64,b128,u16,u32,u64,s16,s32,s64,f32,f64,pred", "=* *"),
    ROW("cvt", CVT, "round rint ftz sat T:" PLAIN ",bf16 T:" PLAIN ",bf16", "=0w 1w"),
    ROW("cvt", CVT, "round! satfinite relu T:f16,bf16,tf32 T:f32", "=0w 1w"),
    ROW("cvt", CVT_PACK, "round! relu satfinite T:f16x2,bf16x2 T:f32", "=0 1 1"),
    ROW("cvt", CVT_PACK, "round! satfinite! relu T:e4m3x2,e5m2x2 T:f32", "=0 1 1"),
    ROW("cvt", CVT_PACK, "round! satfinite! relu T:e4m3x2,e5m2x2 T:f16x2", "=0 1"),
    ROW("cvt", CVT_PACK, "round! relu T:f16x2 T:e4m3x2,e5m2x2", "=0 1"),
    ROW("ld", LD, "sem scope space cache nc evict1 evict2 prefetch hint vec " MEMORY, "=0wv m b64?"),
    ROW("ldu", LD, "space vec " MEMORY, "=0wv m"),
    ROW("st", ST, "sem scope space cache evict1 evict2 hint vec " MEMORY, "m 0wv b64?"),
    ROW("cvta", CVTA, "to space! T:u64", "=0 *"),
    ROW("isspacep", ISSPACEP, "space!", "=p u64"),
    ROW("prefetch", PREFETCH, "space level! evict2", "m"),
    ROW("prefetchu", PREFETCH, "level!", "m"),
    ROW("cp", CP_ASYNC, "async! cache! space! from! prefetch hint", "m m u32 *? *?"),
    ROW("cp", MBARRIER_COPIED, "async! mbarrier! mbarrive! quiet space T:b64", "m"),
    ROW("cp", CP_ASYNC_STEP, "async! step!", "u32?"),
    ROW("alloca", ALLOCA, "T:u64,u32,b64", "=0 0 u32?"),
    ROW("stacksave", STACKSAVE, "T:u64", "=0"),
    ROW("stackrestore", STACKRESTORE, "T:u64", "0"),
    /* --- control --- */
    ROW("bra", BRA, "uni", "L"),
    ROW("brx", BRX, "index! uni", "u32 *"),
    ROW("call", CALL, "uni", "*? *? *? *?"),
    ROW("ret", RET, "uni", ""),
    ROW("exit", EXIT, "", ""),
    ROW("trap", TRAP, "", ""),
    ROW("brkpt", NOP, "", ""),
    ROW("pmevent", NOP, "", "u32"),
    /* --- threads --- */
    ROW("bar", BAR, "scope bar! aligned", "u32 u32?"),
    ROW("bar", BAR, "scope bar! aligned reduce! T:u32", "=0 u32 p"),
    ROW("bar", BAR, "scope bar! aligned reduce! T:u32", "=0 u32 u32 p"),
    ROW("bar", BAR, "scope bar! aligned reduce! T:pred", "=0 u32 p"),
    ROW("bar", BAR, "scope bar! aligned reduce! T:pred", "=0 u32 u32 p"),
    ROW("bar", BAR_WARP, "warp! sync!", "u32"),
    ROW("barrier", BAR, "scope bar! aligned", "u32 u32?"),
    ROW("barrier", BAR, "scope bar! aligned reduce! T:u32", "=0 u32 p"),
    ROW("barrier", BAR, "scope bar! aligned reduce! T:u32", "=0 u32 u32 p"),
    ROW("barrier", BAR, "scope bar! aligned reduce! T:pred", "=0 u32 p"),
    ROW("barrier", BAR, "scope bar! aligned reduce! T:pred", "=0 u32 u32 p"),
    ROW("barrier", CLUSTER_BARRIER, "cluster! clusterstep! sem aligned", ""),
    ROW("membar", FENCE, "scope!", ""),
    ROW("fence", FENCE, "sem scope!", ""),
    ROW("fence", FENCE, "proxy! proxykind!", ""),
    ROW("atom", ATOM, "sem scope space atom! noftz hint T:b16,b32,b64,b128,u32,s32,u64,s64,f32,f64,f16,f16x2,bf16,bf16x2",
     "=0 m 0"),
    ROW("atom", ATOM, "sem scope space atom! hint T:b16,b32,b64,b128", "=0 m 0 0"),
    ROW("atom", ATOM, "sem scope space atom! noftz hint vec! T:f32,f16,f16x2,bf16,bf16x2", "=0v m 0v"),
    ROW("red", RED, "sem scope space atom! noftz hint T:b32,b64,u32,s32,u64,s64,f32,f64,f16,f16x2,bf16,bf16x2",
     "m 0"),
    ROW("red", RED, "sem scope space atom! noftz hint vec! T:f32,f16,f16x2,bf16,bf16x2", "m 0v"),
    ROW("shfl", SHFL, "sync! shfl! T:b32", "=0|p 0 u32 u32 u32"),
    ROW("vote", VOTE, "sync! vote! T:pred", "=p p u32"),
    ROW("vote", VOTE, "sync! vote! T:b32", "=0 p u32"),
    ROW("match", MATCH, "match! sync! T:b32,b64", "=b32|p 0 u32"),
    ROW("redux", REDUX, "sync! redux! T:u32,s32,b32", "=0 0 u32"),
    ROW("activemask", ACTIVEMASK, "T:b32", "=0"),
    ROW("elect", ELECT, "sync!", "=b32|p u32"),
    ROW("mbarrier", MBARRIER_SETUP, "mbsetup! space T:b64", "m u32?"),
    ROW("mbarrier", MBARRIER_ARRIVE, "sem scope mbarrive! quiet space T:b64", "=0 m u32?"),
    ROW("mbarrier", MBARRIER_COUNT, "mbarrier! T:b64", "=u32 0"),
    ROW("mbarrier", MBARRIER_WAIT, "sem scope mbwait! space T:b64", "=p m 0 u32?"),
    ROW("mbarrier", MBARRIER_WAIT, "sem scope mbwait! parity! space T:b64", "=p m u32 u32?"),
    /* --- clusters of one block, and hints --- */
    ROW("mapa", MAPA, "space T:u32,u64", "=0 * u32"),
    ROW("getctarank", GETCTARANK, "space T:u32,u64", "=u32 *"),
    ROW("griddepcontrol", NOP, "depend!", ""),
    ROW("createpolicy", POLICY, "policy! priority1! T:b64", "=0 f32?"),
    ROW("createpolicy", POLICY, "policy! priority1! priority2! T:b64", "=0 f32?"),
    ROW("applypriority", NOP, "space evict2!", "m u32"),
    ROW("discard", NOP, "space level!", "m u32"),
    ROW("setmaxnreg", NOP, "maxnreg! sync! aligned! T:u32", "u32"),
    /* --- two or four lanes in a word --- */
    ROW("vadd2", VADD, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vsub2", VSUB, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vavrg2", VAVRG, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vabsdiff2", VABSDIFF, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vmin2", VMIN, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vmax2", VMAX, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vset2", VSET, "cmp! acc T:u32,s32 T:u32,s32", "=u32 0 1 u32"),
    ROW("vadd4", VADD, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vsub4", VSUB, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vavrg4", VAVRG, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vabsdiff4", VABSDIFF, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vmin4", VMIN, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vmax4", VMAX, "sat acc T:u32,s32 T:u32,s32 T:u32,s32", "=0 1 2 0"),
    ROW("vset4", VSET, "cmp! acc T:u32,s32 T:u32,s32", "=u32 0 1 u32"),
    ROW("nanosleep", NANOSLEEP, "T:u32", "0"),
    /* --- matrices; which shapes go with which types is in check_mma.c --- */
    ROW("mma", MMA, "sync! aligned! shape! layout1! layout2! T:f16,f32 T:f16 T:f16 T:f16,f32", "=* * * *"),
    ROW("mma", MMA, "sync! aligned! shape! layout1! layout2! T:f32 T:bf16,tf32 T:bf16,tf32 T:f32", "=* * * *"),
    ROW("mma", MMA, "sync! aligned! shape! layout1! layout2! satfinite T:s32 T:s8,u8,s4,u4 T:s8,u8,s4,u4 T:s32",
     "=* * * *"),
    ROW("mma", MMA, "sync! aligned! shape! layout1! layout2! bool! popc! T:s32 T:b1 T:b1 T:s32", "=* * * *"),
    ROW("mma", MMA, "sync! aligned! shape! layout1! layout2! round T:f64 T:f64 T:f64 T:f64", "=* * * *"),
    ROW("wmma", WMMA_LOAD, "wload! matrix! sync! aligned layout1! shape! space T:" FRAGMENT, "=* m u32?"),
    ROW("wmma", WMMA_STORE, "wstore! matrix! sync! aligned layout1! shape! space T:f16,f32,s32,f64", "m * u32?"),
    ROW("wmma", WMMA_MMA, "wmma! sync! aligned layout1! layout2! shape! T:f16,f32 T:f16,f32", "=* * * *"),
    ROW("wmma", WMMA_MMA, "wmma! sync! aligned layout1! layout2! shape! T:f32 T:bf16,tf32 T:bf16,tf32 T:f32",
     "=* * * *"),
    ROW("wmma", WMMA_MMA,
     "wmma! sync! aligned layout1! layout2! shape! satfinite T:s32 T:s8,u8,s4,u4 T:s8,u8,s4,u4 T:s32", "=* * * *"),
    ROW("wmma", WMMA_MMA, "wmma! sync! aligned layout1! layout2! shape! bool! popc! T:s32 T:b1 T:b1 T:s32",
     "=* * * *"),
    ROW("wmma", WMMA_MMA, "wmma! sync! aligned layout1! layout2! shape! round T:f64 T:f64 T:f64 T:f64", "=* * * *"),
    ROW("ldmatrix", LDMATRIX, "sync! aligned! shape! xcount! trans space T:b16", "=* m"),
    ROW("stmatrix", STMATRIX, "sync! aligned! shape! xcount! trans space T:b16", "m *"),
    ROW("movmatrix", MOVMATRIX, "sync! aligned! shape! trans! T:b16", "=b32 b32"),
};
// clang-format on
const uint32_t sg_form_count = sizeof(sg_form_table) / sizeof(sg_form_table[0]);

static const char *const unsupported[] = {
    "wgmma",     "tcgen05", "istypep", "multimem", "clusterlaunchcontrol",
    "tensormap", "vadd",    "vsub",    "vabsdiff", "vmin",
    "vmax",      "vshl",    "vshr",    "vmad",     "vset",

};

bool sg_base_is_unsupported(struct sg_slice base)
{
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++)
        if (sg_slice_is(base, unsupported[i]))
            return true;
    return false;
}
