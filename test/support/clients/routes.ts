import type Koa from 'koa'

/** The routes of one of our APIs, as its kernel serves them. */
export function routesOf(app: Koa): readonly { method: string; path: string }[] {
  const layer = app.middleware.find(layer => 'routes' in layer) as unknown as {
    routes: readonly { method: string; path: string }[]
  }
  return layer.routes
}
