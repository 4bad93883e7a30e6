import type { Database } from '../../../database/connection.js'
import { one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'

/** How many amphorae have which agent. */
export type AgentSummary = {
  /** SHA-256 of the agent of this version. */
  bundle: string
  current: number
  /** Another agent, which can be upgraded in place. */
  others: number
  /** An agent that cannot be upgraded in place. */
  older: number
  /** Upgrades in place that have begun. */
  upgrading: number
  /** Why the latest upgrade failed that did, and of which amphora. */
  failure: { amphora: string; text: string } | null
}

/** @param bundle SHA-256 of the agent of this version */
export async function summariseAgents(database: Database, bundle: string): Promise<AgentSummary> {
  const counts = await one(
    database,
    sql<Omit<AgentSummary, 'bundle'>>`
     SELECT (count(*) FILTER (WHERE agent_bundle = ${bundle}))::int AS current,
            (count(*) FILTER (WHERE agent_bundle <> ${bundle}))::int AS others,
            (count(*) FILTER (WHERE agent_bundle IS NULL AND agent_version IS NOT NULL))::int AS older,
            (count(*) FILTER (WHERE upgrade_to IS NOT NULL))::int AS upgrading,
            (SELECT jsonb_build_object('amphora', id, 'text', upgrade_fault ->> 'text') FROM amphora
              WHERE upgrade_fault IS NOT NULL ORDER BY upgrade_fault ->> 'at' DESC LIMIT 1) AS failure
       FROM amphora WHERE status IN ('BOOTING', 'READY', 'ALLOCATED')`,
  )
  return { bundle, ...counts }
}

/** The summary as lines for a terminal. Pure. */
export function agentLines({ bundle, current, others, older, upgrading, failure }: AgentSummary): string[] {
  const has = (count: number) => (count === 1 ? '1 amphora has' : `${count} amphorae have`)
  const parts = [
    `${has(current)} the agent of this version (${bundle.slice(0, 8)})`,
    ...(others > 0 ? [`${others} another one`] : []),
    ...(older > 0 ? [`${older} one that cannot be upgraded in place`] : []),
    ...(upgrading > 0 ? [`${upgrading} being upgraded`] : []),
  ]
  if (current + others + older === 0) return ['No agent of an amphora has been heard yet.']
  return [
    `${parts.join(', ')}.${others + older > 0 ? ' `krater amphora upgrade --dry-run` says more.' : ''}`,
    ...(failure === null ? [] : [`The agent of amphora ${failure.amphora} was not upgraded: ${failure.text}`]),
  ]
}
