import type { Context, Middleware } from 'koa'

export type RouteHandler = (ctx: Context) => void | Promise<void>

export type Router = {
  /**
   * Adds a route. Of several that fit a request the one that was added first answers.
   * @param path `/v1/secrets/:id`: a segment is a literal, or `:` and the name under which `ctx.params` has the request's, decoded
   */
  add: (method: string, path: string, handle: RouteHandler) => void
  /**
   * Answers requests by the routes, those added later too. One slash at the end of a path counts for nothing.
   * @param refuse answers what no route takes; `methods` are those that routes of the path have, none when there is no such path
   */
  middleware: (refuse?: (ctx: Context, methods: ReadonlySet<string>) => void | Promise<void>) => Routing
}

/** The middleware of a router, which shows what it serves. */
export type Routing = Middleware & { served: readonly { method: string; path: string }[] }

export type RouterOptions = {
  /** Whether literals fit only in the case that they are written in. */
  sensitive?: boolean
  /** Whether routes for GET answer HEAD too. */
  answersHead?: boolean
}

type Route = { order: number; method: string; path: string; names: readonly (string | null)[]; handle: RouteHandler }

/** The routes of a path, under its segments. */
type Branch = { literals: Map<string, Branch>; parameter: Branch | null; routes: Route[] }

const emptyBranch = (): Branch => ({ literals: new Map(), parameter: null, routes: [] })

/**
 * Finds the route of a request segment by segment, so the number of routes costs nothing. Paths are compared as they came, like those who
 * check rights do: an encoded character is never the one that it stands for.
 */
export function createRouter({ sensitive = false, answersHead = true }: RouterOptions = {}): Router {
  const root = emptyBranch()
  const routes: Route[] = []
  const written = (literal: string) => (sensitive ? literal : literal.toLowerCase())

  const branchOf = (segments: readonly string[]): Branch => {
    let branch = root
    for (const segment of segments) {
      const next = segment.startsWith(':') ? branch.parameter : branch.literals.get(written(segment))
      const below = next ?? emptyBranch()
      if (segment.startsWith(':')) branch.parameter = below
      else branch.literals.set(written(segment), below)
      branch = below
    }
    return branch
  }
  const gather = (branch: Branch, segments: readonly string[], at: number): readonly Route[] => {
    const segment = segments[at]
    if (segment === undefined) return branch.routes
    const literal = branch.literals.get(written(segment))
    const parameter = segment === '' ? null : branch.parameter
    if (literal === undefined) return parameter === null ? [] : gather(parameter, segments, at + 1)
    if (parameter === null) return gather(literal, segments, at + 1)
    return [...gather(literal, segments, at + 1), ...gather(parameter, segments, at + 1)].sort(inOrder)
  }
  const answersTo = (route: Route, method: string) =>
    route.method === method || (answersHead && method === 'HEAD' && route.method === 'GET')

  const middleware: Router['middleware'] = (refuse = refuseMethod) => {
    const answer: Middleware = async ctx => {
      const segments = segmentsOf(ctx.path)
      const fitting = segments === null ? [] : gather(root, segments, 0)
      const route = fitting.find(one => answersTo(one, ctx.method))
      if (route === undefined || segments === null) return refuse(ctx, methodsOf(fitting, answersHead))
      ctx.params = paramsOf(route, segments)
      await route.handle(ctx)
    }
    return Object.assign(answer, { served: routes })
  }
  return {
    add: (method, path, handle) => {
      const segments = segmentsOf(path) ?? []
      const names = segments.map(segment => (segment.startsWith(':') ? segment.slice(1) : null))
      const route = { order: routes.length, method, path, names, handle }
      routes.push(route)
      branchOf(segments).routes.push(route)
    },
    middleware,
  }
}

const inOrder = (a: Route, b: Route): number => a.order - b.order

/** Null for what is no path, as `*` of OPTIONS. */
function segmentsOf(path: string): string[] | null {
  if (!path.startsWith('/')) return null
  const end = path.endsWith('/') ? path.length - 1 : path.length
  return end === 0 ? [] : path.slice(1, end).split('/')
}

/** The application has refused paths that cannot be decoded. */
function paramsOf({ names }: Route, segments: readonly string[]): Record<string, string> {
  const params: Record<string, string> = {}
  for (const [at, name] of names.entries()) if (name !== null) params[name] = decodeURIComponent(segments[at] ?? '')
  return params
}

function methodsOf(routes: readonly Route[], answersHead: boolean): ReadonlySet<string> {
  return new Set(routes.flatMap(({ method }) => (answersHead && method === 'GET' ? ['HEAD', 'GET'] : [method])))
}

const KNOWN_METHODS: ReadonlySet<string> = new Set(['HEAD', 'OPTIONS', 'GET', 'PUT', 'PATCH', 'POST', 'DELETE'])

/** Tells which methods a path has, by OPTIONS or 405; what is no path is left 404. */
function refuseMethod(ctx: Context, methods: ReadonlySet<string>): void {
  if (KNOWN_METHODS.has(ctx.method) && methods.size === 0) return
  ctx.set('Allow', [...methods].join(', '))
  ctx.status = 405
  if (ctx.method !== 'OPTIONS') return
  ctx.status = 200
  ctx.body = ''
}
