/** The named parts of a path, decoded: `{ id: '...' }`. */
export type Params = Readonly<Record<string, string>>

export type Found<Route> = {
  /** Null when the path has no route for the method. */
  match: { route: Route; params: Params } | null
  /** Every route of the path, whatever its method; none when there is no such path. */
  routes: readonly Route[]
}

export type Router<Route> = { find: (method: string, path: string) => Found<Route> }

type Leaf<Route> = { route: Route; names: readonly { name: string; depth: number }[] }
type Node<Route> = { statics: Map<string, Node<Route>>; parameter: Node<Route> | null; leaves: Leaf<Route>[] }

const emptyNode = <Route>(): Node<Route> => ({ statics: new Map(), parameter: null, leaves: [] })

/**
 * Finds routes by walking a tree of segments: what a request costs does not grow with the number of routes. One slash at the end of a path
 * does not count. Static segments go before named ones. GET answers HEAD as well, unless a HEAD of the same path stands before it.
 */
export function createRouter<Route extends { method: string; path: string }>(
  routes: readonly Route[],
  { caseSensitive, headIsGet }: { caseSensitive: boolean; headIsGet: boolean },
): Router<Route> {
  const written = (segment: string) => (caseSensitive ? segment : segment.toLowerCase())
  const root = emptyNode<Route>()
  for (const route of routes) {
    let node = root
    const names: { name: string; depth: number }[] = []
    for (const [depth, segment] of segmentsOf(route.path).entries()) {
      const isNamed = segment.startsWith(':')
      if (isNamed) names.push({ name: segment.slice(1), depth })
      const known = isNamed ? node.parameter : node.statics.get(written(segment))
      const next: Node<Route> = known ?? emptyNode()
      if (isNamed) node.parameter = next
      else node.statics.set(written(segment), next)
      node = next
    }
    node.leaves.push({ route, names })
  }

  const collect = (node: Node<Route>, segments: readonly string[], depth: number, into: Leaf<Route>[]): void => {
    const segment = segments[depth]
    if (segment === undefined) {
      for (const leaf of node.leaves) into.push(leaf)
      return
    }
    const next = node.statics.get(written(segment))
    if (next !== undefined) collect(next, segments, depth + 1, into)
    if (node.parameter !== null && segment !== '') collect(node.parameter, segments, depth + 1, into)
  }

  return {
    find: (method, path) => {
      const segments = segmentsOf(path)
      const candidates: Leaf<Route>[] = []
      collect(root, segments, 0, candidates)
      const found =
        candidates.find(({ route }) => route.method === method || (headIsGet && isHeadOf(method, route.method))) ?? null
      return {
        match: found && { route: found.route, params: paramsOf(found, segments) },
        routes: candidates.map(({ route }) => route),
      }
    },
  }
}

const isHeadOf = (method: string, served: string): boolean => method === 'HEAD' && served === 'GET'

function segmentsOf(path: string): string[] {
  const end = path.length > 1 && path.endsWith('/') ? path.length - 1 : path.length
  return end <= 1 ? [] : path.slice(1, end).split('/')
}

function paramsOf<Route>({ names }: Leaf<Route>, segments: readonly string[]): Params {
  const params: Record<string, string> = {}
  for (const { name, depth } of names) params[name] = decodeURIComponent(segments[depth] ?? '')
  return params
}
