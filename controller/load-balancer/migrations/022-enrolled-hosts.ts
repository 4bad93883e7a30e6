import type { Migration } from '../../database/migrate.js'

/**
 * Hosts that an operator has enrolled; each carries one amphora at a time. `host_key` is pinned. `turn` grows whenever a
 * host is to become another amphora, or none: it fences what comes late. `plugged` holds the amphora's ports: for each, the
 * interface on its network and its addresses. `changes` is what the enrolment changed on the host, for people; the
 * host has the list that counts.
 */
export const enrolledHosts: Migration = {
  name: '022-enrolled-hosts',
  up: async trx => {
    await trx.raw(`
      CREATE TABLE enrolled_host (
        id                 uuid PRIMARY KEY,
        name               text NOT NULL UNIQUE,
        login              text NOT NULL,
        address            text NOT NULL,
        port               integer NOT NULL,
        host_key           bytea NOT NULL UNIQUE,
        zone               text NOT NULL,
        physical_host      text NOT NULL,
        controller_address text NOT NULL,
        interfaces         jsonb NOT NULL,
        changes            jsonb NOT NULL DEFAULT '[]',
        state              text NOT NULL CHECK (state IN ('enrolling', 'free', 'in use', 'wiping', 'broken', 'retiring')),
        reason             text,
        turn               bigint NOT NULL DEFAULT 0,
        amphora_id         uuid,
        plugged            jsonb NOT NULL DEFAULT '{}',
        created_at         timestamptz NOT NULL DEFAULT now(),
        state_at           timestamptz NOT NULL DEFAULT now(),
        last_seen          timestamptz,
        CHECK (state <> 'in use' OR amphora_id IS NOT NULL),
        UNIQUE (address, port)
      )`)
    await trx.raw(`CREATE UNIQUE INDEX enrolled_host_amphora ON enrolled_host (amphora_id) WHERE state = 'in use'`)
  },
}
