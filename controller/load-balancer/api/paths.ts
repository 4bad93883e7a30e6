/**
 * The one path that stands for all spellings of it: `/v2`, `/v2.0` or no version, with or without `lbaas` after a version, a `.json`
 * suffix, a slash at the end.
 */
export function canonicalPath(path: string): string {
  const bare = withoutLastSlashes(path).replace(/\.json$/, '')
  if (bare === '') return '/'
  const [, version, rest = ''] = /^\/(v2|v2\.0)(\/.*)?$/.exec(bare) ?? []
  if (version === undefined) return bare
  if (rest === '' || rest === '/lbaas' || rest === '/octavia') return VERSION_NODE
  return /^\/(lbaas|octavia)\//.test(rest) ? rest : `/lbaas${rest}`
}

/**
 * A path without the prefix under which the API is mounted, or null when it does not begin with it.
 * @param prefix without a slash at its end
 */
export function withoutPrefix(path: string, prefix: string): string | null {
  if (!path.startsWith(prefix)) return null
  const rest = path.slice(prefix.length)
  return rest === '' ? '/' : rest.startsWith('/') ? rest : null
}

/** Without a pattern, which would take quadratic time on a path of thousands of slashes, asked for before any token is looked at. */
function withoutLastSlashes(path: string): string {
  let end = path.length
  while (path[end - 1] === '/') end--
  return path.slice(0, end)
}

/** `/v2` and what else names the version rather than a collection. */
export const VERSION_NODE = '/v2'
