/**
 * Canonical form of a path. Variants have `/v2`, `/v2.0` or no version, with or without `lbaas` after a
 * version, a `.json` suffix, or trailing slashes.
 */
export function canonicalPath(path: string): string {
  const bare = withoutTrailingSlashes(path).replace(/\.json$/, '')
  if (bare === '') return '/'
  const [, version, rest = ''] = /^\/(v2|v2\.0)(\/.*)?$/.exec(bare) ?? []
  if (version === undefined) return bare
  if (rest === '' || rest === '/lbaas' || rest === '/octavia') return VERSION_NODE
  return /^\/(lbaas|octavia)\//.test(rest) ? rest : `/lbaas${rest}`
}

/**
 * Removes the prefix under which the API is mounted; null if the path does not start with it.
 * @param prefix without a trailing slash
 */
export function withoutPrefix(path: string, prefix: string): string | null {
  if (!path.startsWith(prefix)) return null
  const rest = path.slice(prefix.length)
  return rest === '' ? '/' : rest.startsWith('/') ? rest : null
}

/**
 * Uses no regular expression, which would take quadratic time for a path with thousands of slashes. This code
 * runs before the token is checked.
 */
function withoutTrailingSlashes(path: string): string {
  let end = path.length
  while (path[end - 1] === '/') end--
  return path.slice(0, end)
}

/** Canonical path of the version itself. */
export const VERSION_NODE = '/v2'
