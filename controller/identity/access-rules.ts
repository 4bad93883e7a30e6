import { z } from 'zod'

/** One request that an application credential may make: service type, method and path pattern. */
export const accessRuleSchema = z.object({
  service: z.string().min(1).max(255),
  method: z.enum(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']),
  path: z.string().startsWith('/').max(128),
})

export type AccessRule = z.output<typeof accessRuleSchema>

/** What is asked of a service: its type in the catalogue, the method, and the path without the query. */
export type RequestLine = { service: string; method: string; path: string }

/** More than any path of the services has. It bounds what the rules of a caller cost, which match every part against `**`. */
const MOST_SEGMENTS = 32

/**
 * True when one rule matches. In a pattern `*` and `{name}` stand for one path segment and `**` for any number.
 */
export function isAllowedBy(rules: readonly AccessRule[], request: RequestLine): boolean {
  const path = request.path.split('/')
  if (path.length > MOST_SEGMENTS) return false
  return rules.some(
    rule =>
      rule.service === request.service && rule.method === request.method && segmentsMatch(rule.path.split('/'), path),
  )
}

/** Walks the pattern once, going back only to the last `**`, so that no pattern costs more than segments times segments. */
function segmentsMatch(pattern: readonly string[], path: readonly string[]): boolean {
  let at = 0
  let retry: { pattern: number; path: number } | null = null
  let position = 0
  while (position < path.length) {
    const segment = pattern[at]
    if (segment === '**') {
      retry = { pattern: at + 1, path: position }
      at++
    } else if (segment !== undefined && segmentMatches(segment, path[position]!)) {
      at++
      position++
    } else if (retry !== null) {
      retry = { pattern: retry.pattern, path: retry.path + 1 }
      at = retry.pattern
      position = retry.path
    } else {
      return false
    }
  }
  while (pattern[at] === '**') at++
  return at === pattern.length
}

function segmentMatches(pattern: string, segment: string): boolean {
  if (pattern === '*' || /^\{[^}]+\}$/.test(pattern)) return segment !== ''
  return pattern === segment
}
