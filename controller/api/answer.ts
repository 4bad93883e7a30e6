import type { Context } from 'koa'

/**
 * A handler's answer. `json` is the text of a JSON body, which PostgreSQL often produces as a whole. `bytes` is
 * any other body; the headers name its Content-Type. Without either there is no body.
 */
export type Answer = {
  status: number
  json?: string
  bytes?: Buffer
  headers?: Readonly<Record<string, string>>
}

export const jsonAnswer = (status: number, value: unknown): Answer => ({ status, json: JSON.stringify(value) })

export const NO_CONTENT: Answer = { status: 204 }

export function send(ctx: Context, { status, json, bytes, headers }: Answer): void {
  if (headers !== undefined) ctx.set(headers)
  // Before the body: Koa guesses a type only if none is set.
  if (json !== undefined) ctx.set('Content-Type', 'application/json; charset=utf-8')
  ctx.body = json ?? bytes ?? null
  ctx.status = status
}
