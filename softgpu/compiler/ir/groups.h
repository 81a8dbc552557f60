/*
 * groups.h - the groups of modifiers, a row each: GROUP(constant, the name by which rows of the instruction
 * table mean it, its words …). The enums of words in instruction.h number them from 1, in this order.
 */
#ifndef SG_COMPILER_IR_GROUPS_H
#define SG_COMPILER_IR_GROUPS_H

// clang-format off
#define SG_GROUPS(GROUP) \
    GROUP(ROUND, "round", "rn", "rz", "rm", "rp", "rna") \
    GROUP(RINT, "rint", "rni", "rzi", "rmi", "rpi") \
    GROUP(FTZ, "ftz", "ftz") \
    GROUP(SAT, "sat", "sat") \
    GROUP(SATFINITE, "satfinite", "satfinite") \
    GROUP(RELU, "relu", "relu") \
    GROUP(NAN, "nan", "NaN") \
    GROUP(XORSIGN, "xorsign", "xorsign") \
    GROUP(ABS, "abs", "abs") \
    GROUP(APPROX, "approx", "approx", "full") \
    GROUP(WIDE, "wide", "lo", "hi", "wide") \
    GROUP(CC, "cc", "cc") \
    GROUP(SPACE, "space", "shared", "global", "local", "const", "param", "shared::cta", "shared::cluster", \
          "param::entry", "param::func") \
    GROUP(TO, "to", "to") \
    GROUP(SEM, "sem", "weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "sc") \
    GROUP(SCOPE, "scope", "cta", "cluster", "gpu", "sys", "gl") \
    GROUP(VEC, "vec", "v2", "v4", "v8") \
    GROUP(CACHE, "cache", "ca", "cg", "cs", "lu", "cv", "wb", "wt") \
    GROUP(NC, "nc", "nc") \
    GROUP(EVICT1, "evict1", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", \
          "L1::evict_last", "L1::no_allocate") \
    GROUP(EVICT2, "evict2", "L2::evict_normal", "L2::evict_first", "L2::evict_last") \
    GROUP(PREFETCH, "prefetch", "L2::64B", "L2::128B", "L2::256B") \
    GROUP(CACHE_HINT, "hint", "L2::cache_hint") \
    GROUP(CMP, "cmp", "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", \
          "leu", "gtu", "geu", "num", "nan") \
    GROUP(BOOL, "bool", "and", "or", "xor") \
    GROUP(ATOM, "atom", "and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max") \
    GROUP(NOFTZ, "noftz", "noftz") \
    GROUP(DIRECTION, "lr", "l", "r") \
    GROUP(CLAMP, "clamp", "clamp", "wrap") \
    GROUP(SHIFTAMT, "shiftamt", "shiftamt") \
    GROUP(SHFL, "shfl", "up", "down", "bfly", "idx") \
    GROUP(VOTE, "vote", "all", "any", "uni", "ballot") \
    GROUP(SYNC, "sync", "sync") \
    GROUP(ALIGNED, "aligned", "aligned") \
    GROUP(UNI, "uni", "uni") \
    GROUP(PRMT, "prmt", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16") \
    GROUP(LEVEL, "level", "L1", "L2") \
    GROUP(TESTP, "testp", "finite", "infinite", "number", "notanumber", "normal", "subnormal") \
    GROUP(BAR, "bar", "sync", "arrive", "red") \
    GROUP(REDUCE, "reduce", "popc", "and", "or") /* of barriers */ \
    GROUP(WARP, "warp", "warp") \
    GROUP(MATCH, "match", "any", "all") \
    GROUP(REDUX, "redux", "add", "min", "max", "and", "or", "xor") \
    GROUP(ASYNC, "async", "async") \
    GROUP(ASYNC_STEP, "step", "commit_group", "wait_group", "wait_all") \
    GROUP(INDEX, "index", "idx") \
    GROUP(FROM, "from", "global") /* the second space of cp.async */ \
    GROUP(ACCUMULATE, "acc", "add") /* the sum of the lanes is added to c */ \
    GROUP(CLUSTER, "cluster", "cluster") \
    GROUP(CLUSTER_STEP, "clusterstep", "arrive", "wait") \
    GROUP(DEPEND, "depend", "launch_dependents", "wait") \
    GROUP(POLICY, "policy", "fractional") \
    GROUP(PRIORITY1, "priority1", "L2::evict_last", "L2::evict_normal", "L2::evict_first", \
          "L2::evict_unchanged") \
    GROUP(PRIORITY2, "priority2", "L2::evict_first", "L2::evict_unchanged") \
    GROUP(MAXNREG, "maxnreg", "inc", "dec") \
    GROUP(PROXY, "proxy", "proxy") \
    GROUP(PROXY_KIND, "proxykind", "alias", "async", "async::generic", "tensormap::generic") \
    GROUP(MBARRIER, "mbarrier", "mbarrier", "pending_count") /* of cp.async */ \
    GROUP(MBARRIER_SETUP, "mbsetup", "init", "inval") \
    GROUP(MBARRIER_ARRIVE, "mbarrive", "arrive", "arrive_drop") \
    GROUP(MBARRIER_WAIT, "mbwait", "test_wait", "try_wait") \
    GROUP(PARITY, "parity", "parity") \
    GROUP(QUIET, "quiet", "noComplete", "noinc") \
    GROUP(WMMA_LOAD, "wload", "load") \
    GROUP(WMMA_STORE, "wstore", "store") \
    GROUP(WMMA_MMA, "wmma", "mma") \
    GROUP(MATRIX, "matrix", "a", "b", "c", "d") \
    GROUP(LAYOUT1, "layout1", "row", "col") \
    GROUP(LAYOUT2, "layout2", "row", "col") \
    GROUP(SHAPE, "shape", "m8n8", "m8n8k4", "m8n8k16", "m8n8k32", "m8n8k128", "m16n8k4", "m16n8k8", \
          "m16n8k16", "m16n8k32", "m16n8k64", "m16n8k128", "m16n8k256", "m16n16k8", "m16n16k16", \
          "m32n8k16", "m8n32k16") /* mma.c has them as numbers */ \
    GROUP(MATRIX_COUNT, "xcount", "x1", "x2", "x4") \
    GROUP(TRANSPOSE, "trans", "trans") \
    GROUP(POPC, "popc", "popc") \
    GROUP(KIND, "kind", "kind::f8f6f4") \
    GROUP(SPARSE, "sparse", "sp", "sp::ordered_metadata") \
    GROUP(MMIO, "mmio", "mmio") \
    GROUP(PACK, "pack", "pack") \
    GROUP(MASK, "mask", "mask") \
    GROUP(POLICY_CVT, "policycvt", "cvt", "range") \
    GROUP(RESTRICT, "restrict", "sync_restrict::shared::cta", "sync_restrict::shared::cluster") \
    GROUP(MBARRIER_INIT, "mbinit", "mbarrier_init") \
    GROUP(EXPECT, "expect", "expect_tx", "complete_tx") \
    GROUP(BULK, "bulk", "bulk") \
    GROUP(FROM_BULK, "frombulk", "global", "shared::cta") /* the second space of cp.async.bulk */ \
    GROUP(COMPLETE, "complete", "mbarrier::complete_tx::bytes", "bulk_group") /* of a copy */ \
    GROUP(MULTICAST, "multicast", "multicast::cluster") \
    GROUP(READ, "read", "read") \
    GROUP(BULK_PREFETCH, "bulkprefetch", "prefetch") \
    GROUP(CP_REDUCE, "cpreduce", "reduce") /* cp.reduce */ \
    GROUP(CP_MASK, "cpmask", "cp_mask") \
    GROUP(IGNORE_OOB, "ignoreoob", "ignore_oob") \
    GROUP(SECOND, "second", "add", "min", "max") /* of video instructions */ \
    GROUP(PLUS_ONE, "po", "po") \
    GROUP(SCALE, "scale", "shr7", "shr15") \
    GROUP(TENSOR, "tensor", "tensor") \
    GROUP(DIMENSIONS, "dims", "1d", "2d", "3d", "4d", "5d") \
    GROUP(TILE, "tile", "tile") \
    GROUP(TENSORMAP, "tensormap", "tensormap") \
    GROUP(FENCEPROXY, "fenceproxy", "cp_fenceproxy") \
    GROUP(REPLACE, "replace", "replace") \
    GROUP(MAP_FIELD, "mapfield", "global_address", "rank", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode") \
    GROUP(MAP_DIMENSION, "mapdimension", "box_dim", "global_dim", "global_stride", "element_stride") \
    GROUP(B1024, "b1024", "b1024") \
    GROUP(TRY_CANCEL, "trycancel", "try_cancel") \
    GROUP(QUERY_CANCEL, "querycancel", "query_cancel") \
    GROUP(IS_CANCELED, "iscanceled", "is_canceled") \
    GROUP(FIRST_CTAID, "firstctaid", "get_first_ctaid", "get_first_ctaid::x", "get_first_ctaid::y", \
          "get_first_ctaid::z") \
    GROUP(CLUSTER_WINDOW, "clusterwindow", NULL) /* not written: the space is .shared::cluster */
// clang-format on

#endif
