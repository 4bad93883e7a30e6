import * as z from 'zod'

/** One request that an application credential may make: service type, method and path pattern. */
export const accessRuleSchema = z.object({
  service: z.string().min(1).max(255),
  method: z.enum(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']),
  path: z.string().startsWith('/').max(128),
})

export type AccessRule = z.output<typeof accessRuleSchema>

/** A request to a service: the service's type in the catalogue, the method, and the path without the query. */
export type RequestLine = { service: string; method: string; path: string }

/** More segments than any path of the services has. Bounds the cost of rules with `**`. */
const MAX_SEGMENTS = 32

/** Whether a rule matches. In a pattern, `*` and `{name}` match one path segment and `**` matches any number. */
export function isAllowedBy(rules: readonly AccessRule[], request: RequestLine): boolean {
  const path = request.path.split('/')
  if (path.length > MAX_SEGMENTS) return false
  return rules.some(
    rule =>
      rule.service === request.service && rule.method === request.method && segmentsMatch(rule.path.split('/'), path),
  )
}

/** Backtracks only to the last `**`, so the cost is at most the pattern's segments times the path's. */
function segmentsMatch(pattern: readonly string[], path: readonly string[]): boolean {
  let patternIndex = 0
  let retry: { pattern: number; path: number } | null = null
  let pathIndex = 0
  while (pathIndex < path.length) {
    const segment = pattern[patternIndex]
    if (segment === '**') {
      retry = { pattern: patternIndex + 1, path: pathIndex }
      patternIndex++
    } else if (segment !== undefined && segmentMatches(segment, path[pathIndex]!)) {
      patternIndex++
      pathIndex++
    } else if (retry !== null) {
      retry = { pattern: retry.pattern, path: retry.path + 1 }
      patternIndex = retry.pattern
      pathIndex = retry.path
    } else {
      return false
    }
  }
  while (pattern[patternIndex] === '**') patternIndex++
  return patternIndex === pattern.length
}

function segmentMatches(pattern: string, segment: string): boolean {
  if (pattern === '*' || /^\{[^}]+\}$/.test(pattern)) return segment !== ''
  return pattern === segment
}
