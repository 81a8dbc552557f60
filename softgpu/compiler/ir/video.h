/*
 * video.h - selectors of the video instructions: which part of an operand, or which lanes.
 */
#ifndef SG_COMPILER_IR_VIDEO_H
#define SG_COMPILER_IR_VIDEO_H

#include "softgpu/compiler/ir/instruction.h"

/** Whether it is one of them; and how many lanes it works on: 1, 2 or 4. */
bool sg_is_video(const struct sg_form *form);
unsigned sg_video_lanes(const struct sg_form *form);

/*
 * struct sg_operand.selector, 0 if none is written. On one value: 1 … 4 a byte, 5 and 6 a half. On lanes: of
 * the result a mask of those that are computed, of an operand SG_VIDEO_CHOICE and three bits a lane, the
 * number of the lane of both operands that is taken for it (first those of the first operand).
 */
#define SG_VIDEO_CHOICE 0x8000u

static inline unsigned sg_video_bits(uint16_t selector)
{
    return selector == 0 ? 32 : selector <= 4 ? 8 : 16;
}
static inline unsigned sg_video_first_bit(uint16_t selector)
{
    return selector == 0 ? 0 : selector <= 4 ? (selector - 1u) * 8 : (selector - 5u) * 16;
}
static inline unsigned sg_video_mask(uint16_t selector, unsigned lanes)
{
    return selector == 0 ? (1u << lanes) - 1 : selector;
}
/** The lane that is taken for lane i of an operand whose own lanes begin at `first`. */
static inline unsigned sg_video_choice(uint16_t selector, unsigned lanes, unsigned i, unsigned first)
{
    return selector == 0 ? first + i : (selector >> (3 * i) & 7u) % (2 * lanes);
}

#endif
