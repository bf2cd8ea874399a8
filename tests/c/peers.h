/* peers.h: what the tests of peer and pool access share: the two by one shape, short ways to ask and to set, and the answers
 * that hold for both. */
#ifndef WARPMEM_TESTS_PEERS_H
#define WARPMEM_TESTS_PEERS_H

#define _GNU_SOURCE

#include "blocks.h"
#include "process.h"

struct access {
    const char *name;
    warp_status (*is_supported)(const warp_device *, const warp_device *, uint8_t *);
    warp_status (*query)(const warp_device *, const warp_device *, uint8_t *);
    warp_status (*set)(warp_device *, warp_device *, uint8_t);
    warp_status (*set_for)(warp_device *, warp_device *const *, size_t, uint8_t);
    warp_status (*begin)(warp_device *, warp_device *, uint8_t, warp_scope **);
    /* What other code does, and the driver's calls that give and take it. */
    void (*outside)(int target, int peer, int on);
    const char *gives, *takes;
};

UNUSED void peer_outside(int target, int peer, int on)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_external_peer)(peer, target, (uint8_t)on), 0);
}

UNUSED void pool_outside(int target, int peer, int on)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_external_pool_access)(target, peer, on ? 3 : 0), 0);
}

UNUSED const struct access kinds[2] = {
    {"peer", warp_peer_access_is_supported, warp_peer_access_query_enabled, warp_peer_access_set_enabled,
     warp_peer_access_set_enabled_for, warp_scope_begin_peer_access, peer_outside, "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"},
    {"pool", warp_mempool_access_is_supported, warp_mempool_access_query_enabled, warp_mempool_access_set_enabled,
     warp_mempool_access_set_enabled_for, warp_scope_begin_mempool_access, pool_outside, "cuMemPoolSetAccess", "cuMemPoolSetAccess"},
};

UNUSED const struct access *const PEER = &kinds[0], *const POOL = &kinds[1];

UNUSED int can(const struct access *access, warp_device *target, warp_device *peer)
{
    uint8_t answer = 9;
    CHECK_STATUS(access->is_supported(target, peer, &answer), WARP_SUCCESS);
    CHECK(answer <= 1);
    return answer;
}

UNUSED int has(const struct access *access, warp_device *target, warp_device *peer)
{
    uint8_t answer = 9;
    CHECK_STATUS(access->query(target, peer, &answer), WARP_SUCCESS);
    CHECK(answer <= 1);
    return answer;
}

UNUSED void turn(const struct access *access, warp_device *target, warp_device *peer, int on)
{
    CHECK_STATUS(access->set(target, peer, (uint8_t)on), WARP_SUCCESS);
}

/* A refusal, after which all is as it was. */
UNUSED void refused(const struct access *access, warp_device *target, warp_device *peer, int on, warp_status status)
{
    int before = has(access, target, peer);
    warp_scope *scope = (warp_scope *)1;
    CHECK_STATUS(access->set(target, peer, (uint8_t)on), status);
    CHECK_STATUS(access->set_for(target, &peer, 1, (uint8_t)on), status);
    CHECK_STATUS(access->begin(target, peer, (uint8_t)on, &scope), status);
    CHECK_EQ_PTR(scope, NULL);
    CHECK_EQ_I64(has(access, target, peer), before);
}

/* Whether both names of a pair are in the last message. */
UNUSED void names_pair(const char *target, const char *peer)
{
    CHECK_STR_CONTAINS(warp_error_get_message(), target);
    CHECK_STR_CONTAINS(warp_error_get_message(), peer);
}

/* With the CPU on either side there is nothing, and nothing to switch off. */
UNUSED void check_cpu_answers(const struct access *access, warp_device *other)
{
    int side;
    for (side = 0; side < 2; ++side) {
        warp_device *target = side ? cpu() : other, *peer = side ? other : cpu();
        CHECK_EQ_I64(can(access, target, peer), 0);
        CHECK_EQ_I64(has(access, target, peer), 0);
        refused(access, target, peer, 1, WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STR_CONTAINS(warp_error_get_message(), "\"cpu\"");
        turn(access, target, peer, 0);
        turn(access, target, peer, 0);
        CHECK_EQ_I64(has(access, target, peer), 0);
    }
}

/* What is so for good can be set to what it is, and to nothing else; nobody asks the driver. */
UNUSED void check_self_answers(const struct access *access, warp_device *self, int expected)
{
    uint64_t gives = calls(access->gives), takes = calls(access->takes);
    warp_scope *scope = NULL;
    CHECK_EQ_I64(can(access, self, self), expected);
    CHECK_EQ_I64(has(access, self, self), expected);
    turn(access, self, self, 0);
    CHECK_EQ_I64(has(access, self, self), expected);
    if (expected) {
        turn(access, self, self, 1);
        CHECK_STATUS(access->begin(self, self, 0, &scope), WARP_SUCCESS);
        CHECK_EQ_I64(has(access, self, self), 1);
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    }
    CHECK_EQ_I64(has(access, self, self), expected);
    CHECK_EQ_U64(calls(access->gives), gives);
    CHECK_EQ_U64(calls(access->takes), takes);
}

/* A pair that can: on, on again, off, off again; the other direction stays as it is. */
UNUSED void check_pair(const struct access *access, warp_device *target, warp_device *peer)
{
    CUcontext current = driver_current();
    int back = has(access, peer, target), on;
    CHECK_EQ_I64(can(access, target, peer), 1);
    CHECK_EQ_I64(has(access, target, peer), 0);
    for (on = 1; on >= 0; --on) {
        turn(access, target, peer, on);
        CHECK_EQ_I64(has(access, target, peer), on);
        turn(access, target, peer, on);
        CHECK_EQ_I64(has(access, target, peer), on);
        CHECK_EQ_I64(has(access, peer, target), back);
    }
    CHECK_EQ_PTR(driver_current(), current);
}

/* What cannot be: refused when it is asked for, nothing to take. */
UNUSED void check_unsupported(const struct access *access, warp_device *target, warp_device *peer)
{
    uint64_t gives = calls(access->gives), takes = calls(access->takes);
    char names[2][64];
    strcpy(names[0], alias_of(target));
    strcpy(names[1], alias_of(peer));
    CHECK_EQ_I64(can(access, target, peer), 0);
    CHECK_EQ_I64(has(access, target, peer), 0);
    refused(access, target, peer, 1, WARP_ERROR_NOT_SUPPORTED);
    names_pair(names[0], names[1]);
    turn(access, target, peer, 0);
    CHECK_EQ_I64(has(access, target, peer), 0);
    CHECK_EQ_U64(calls(access->gives), gives);
    CHECK_EQ_U64(calls(access->takes), takes);
}

#endif
