import type { Desired } from '../../../../amphora-agent/protocol/desired.js'
import type { HelloResult, ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import { PROTOCOL_VERSION } from '../../../../amphora-agent/protocol/version.js'
import type { AgentConnections, AgentTarget, AgentVerb, RequestBody } from './connection.js'
import { AgentUnreachable } from './errors.js'

type Applied = Pick<Desired, 'generation' | 'sha256' | 'interfaces'> & { drains: boolean }

/** Agents of noop amphorae, which exist only in the database: every apply takes effect at once. */
export function createNoopAgentConnections(): AgentConnections {
  const applied = new Map<string, Applied>()

  const answers: { [V in AgentVerb]: (amphoraId: string, body: RequestBody<V>) => ResultOf[V] } = {
    hello: amphoraId => helloOf(applied.get(amphoraId)),
    status: amphoraId => ({
      ...helloOf(applied.get(amphoraId)),
      haproxy: { running: applied.has(amphoraId), pid: null, workers: 0 },
      interfaces: (applied.get(amphoraId)?.interfaces ?? []).map(({ name, mac, vips }) => ({
        name,
        mac,
        addresses: vips.map(({ address }) => address),
      })),
      uptimeSeconds: 0,
    }),
    logs: () => ({ lines: [] }),
    announce: () => ({}),
    lend: () => ({}),
    upgrade: () => ({ trialSeconds: 1 }),
    proof: () => ({}),
    handover: () => ({}),
    become: () => ({}),
    forward: () => ({}),
    survey: () => ({ found: [] }),
    drain: amphoraId => {
      const before = applied.get(amphoraId)
      if (before !== undefined) applied.set(amphoraId, { ...before, drains: true })
      return {}
    },
    apply: (amphoraId, { desired: { generation, sha256, interfaces } }) => {
      const transition = applied.get(amphoraId)?.sha256 === sha256 ? 'unchanged' : 'runtime'
      applied.set(amphoraId, { generation, sha256, interfaces, drains: false })
      return {
        appliedGeneration: generation,
        appliedSha256: sha256,
        transition,
        reason: '',
        milliseconds: 0,
        missing: [],
      }
    },
  }

  return {
    request: async <V extends AgentVerb>({ amphoraId }: AgentTarget, body: RequestBody<V>) => {
      const verb: V = body.verb
      return answers[verb](amphoraId, body)
    },
    relay: async ({ amphoraId }) => {
      throw new AgentUnreachable(amphoraId, 'refused', 'An amphora that exists only in the database serves nothing.')
    },
    close: amphoraId => {
      applied.delete(amphoraId)
    },
    stop: async () => applied.clear(),
  }
}

function helloOf(applied: Applied | undefined): HelloResult {
  return {
    agentVersion: 'noop',
    protocolVersion: PROTOCOL_VERSION,
    bootId: '0000000000000000',
    // Satisfies the renderer's minimum.
    haproxyVersion: '2.6.0',
    keepalivedVersion: 'noop',
    appliedGeneration: applied?.generation ?? 0,
    appliedSha256: applied?.sha256 ?? null,
    drain: applied?.drains === true ? { ended: true, cut: 0 } : null,
    missing: [],
    balancesDatagrams: true,
  }
}
