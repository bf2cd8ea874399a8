/*
 * dice.h: numbers that look random and are the same in every run.
 */
#ifndef WARPMEM_TESTS_DICE_H
#define WARPMEM_TESTS_DICE_H

#include <stdint.h>

/* The next number of the sequence that a state stands for. */
__attribute__((unused)) static uint64_t next_random(uint64_t *state)
{
    uint64_t x = (*state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* From 2^least_log2 to below 2^most_log2: each doubling as often as any other. */
__attribute__((unused)) static uint64_t log_uniform(uint64_t *state, uint64_t least_log2, uint64_t most_log2)
{
    const uint64_t base = (uint64_t)1 << (least_log2 + next_random(state) % (most_log2 - least_log2));
    return base + next_random(state) % base;
}

/* For a program with one sequence: a seed is written here. */
__attribute__((unused)) static uint64_t dice;

/* From 0 to below. */
__attribute__((unused)) static int64_t roll(int64_t below)
{
    return (int64_t)(next_random(&dice) % (uint64_t)below);
}

__attribute__((unused)) static int one_in(int64_t times)
{
    return roll(times) == 0;
}

#endif
