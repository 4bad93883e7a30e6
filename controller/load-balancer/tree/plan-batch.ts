import { randomUUID } from 'node:crypto'
import { badRequest, conflict } from '../../http/errors.js'
import { duplicateMember, type MemberValues } from '../objects/members/rules.js'
import type { NewMember } from './new-objects.js'

export type ExistingMember = { id: string; address: string; protocol_port: number }

/** A member of a batch; `given` has the attributes that the request sets. */
export type RequestedMember = { values: MemberValues; given: ReadonlySet<string> }

export type BatchPlan = {
  create: NewMember[]
  update: { id: string; desired: RequestedMember }[]
  remove: string[]
}

/**
 * Compares the members of a pool with those of a batch. Address and port identify a member. Pure.
 * @param additiveOnly whether to keep members that the batch does not contain
 * @throws ApiError 400 when the batch contains an existing member twice, 409 for a new one
 */
export function planBatch(
  existing: readonly ExistingMember[],
  desired: readonly RequestedMember[],
  additiveOnly: boolean,
): BatchPlan {
  const keyOf = ({ address, protocol_port }: Pick<MemberValues, 'address' | 'protocol_port'>) =>
    `${address} ${protocol_port}`
  const byKey = new Map(existing.map(member => [keyOf(member), member.id]))
  const seen = new Set<string>()
  const plan: BatchPlan = { create: [], update: [], remove: [] }
  for (const one of desired) {
    const key = keyOf(one.values)
    const id = byKey.get(key)
    if (seen.has(key)) {
      if (id === undefined) throw conflict(duplicateMember(one.values))
      throw badRequest(`Validation failure: Member ${one.values.address}:${one.values.protocol_port} appears twice.`)
    }
    seen.add(key)
    if (id === undefined) plan.create.push({ id: randomUUID(), values: one.values })
    else plan.update.push({ id, desired: one })
  }
  if (!additiveOnly) plan.remove = existing.filter(member => !seen.has(keyOf(member))).map(({ id }) => id)
  return plan
}
