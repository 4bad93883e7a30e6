import KoaRouter from '@koa/router'

/** The named parts of a path, decoded: `{ id: '...' }`. */
export type Params = Readonly<Record<string, string>>

export type Found<Route> = {
  /** Null when the path has no route for the method. */
  match: { route: Route; params: Params } | null
  /** Every route of the path, whatever its method; empty for an unknown path. */
  routes: readonly Route[]
}

export type Router<Route> = { find: (method: string, path: string) => Found<Route> }

/**
 * Finds routes with @koa/router's patterns. It only finds them: the dispatcher handles requests. Ignores one
 * trailing slash. Static segments take precedence over named ones. With `headIsGet`, a GET route also answers
 * HEAD, unless a HEAD route of the same path precedes it.
 */
export function createRouter<Route extends { method: string; path: string }>(
  routes: readonly Route[],
  { caseSensitive, headIsGet }: { caseSensitive: boolean; headIsGet: boolean },
): Router<Route> {
  const router = new KoaRouter({ sensitive: caseSensitive })
  const routeOf = new Map<unknown, Route>()
  for (const route of routes.toSorted(staticFirst)) {
    router.register(route.path, [route.method], NO_MIDDLEWARE)
    routeOf.set(router.stack.at(-1), route)
  }
  return {
    find: (method, path) => {
      const candidates = router.match(path, method).path.flatMap(layer => {
        const route = routeOf.get(layer)
        return route === undefined ? [] : [{ layer, route }]
      })
      const found = candidates.find(
        ({ route }) => route.method === method || (headIsGet && isHeadOf(method, route.method)),
      )
      return {
        match:
          found === undefined
            ? null
            : { route: found.route, params: found.layer.params(path, found.layer.captures(path)) },
        routes: candidates.map(({ route }) => route),
      }
    },
  }
}

const NO_MIDDLEWARE = () => undefined

const isHeadOf = (method: string, served: string): boolean => method === 'HEAD' && served === 'GET'

/**
 * Orders paths by the first segment that is named in only one of the two. The sort is stable: other paths keep
 * their order.
 */
function staticFirst(one: { path: string }, other: { path: string }): number {
  const [named, otherNamed] = [one, other].map(({ path }) => path.split('/').map(isNamed).join(''))
  return named === otherNamed ? 0 : String(named) < String(otherNamed) ? -1 : 1
}

const isNamed = (segment: string): string => (segment.startsWith(':') ? '1' : '0')
