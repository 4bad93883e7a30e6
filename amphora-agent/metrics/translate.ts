import { CHALLENGE_PROXY, METRICS_PROXY } from '../protocol/paths.js'
import { OCTAVIA_FAMILIES } from './names.js'

/** Octavia's words in the explanations. */
const WORDS: Readonly<Record<string, string>> = { frontend: 'listener', backend: 'pool', server: 'member' }

/**
 * Translates one line of HAProxy's metrics into Octavia's names and labels. Pure.
 * @returns null for a metric that Octavia does not have, and for the proxies that only carry the metrics
 */
export function translateMetric(line: string): string | null {
  const [, comment = '', name = '', rest = ''] = /^(# (?:HELP|TYPE) )?([a-z_]+)(.*)$/.exec(line) ?? []
  const family = OCTAVIA_FAMILIES.get(name)
  if (family === undefined) return null
  if (comment === '# HELP ')
    return `${comment}${family.name}${rest.replace(/\b(frontend|backend|server)(?=s?\b)/g, word => WORDS[word] ?? word)}`
  if (rest.includes(`proxy="${METRICS_PROXY}"`) || rest.includes(`proxy="${CHALLENGE_PROXY}`)) return null
  return `${comment}${family.name}${rest.replace(/(?<=[{,])(proxy|server)(?==")/g, label => family.labels[label] ?? label)}`
}
