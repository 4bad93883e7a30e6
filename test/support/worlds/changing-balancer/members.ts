import type { Change, Kinds, Member, Model, Pool } from './model.js'

const MAX_MEMBERS = 7

export function memberChanges({ random, call, pools, pick, nameOf, newMember, bodyOf, leaves, isBack }: Model): Kinds {
  /** A member that may change, with its pool. */
  const pickMember = (fits: (member: Member) => boolean = () => true) =>
    pick(pools.flatMap(pool => pool.members.filter(one => !one.stays && fits(one)).map(member => ({ pool, member }))))
  const changeMember = (
    fits: (member: Member) => boolean,
    change: (pool: Pool, member: Member) => Omit<Change, 'path'>,
  ) => {
    const chosen = pickMember(fits)
    if (chosen === null) return null
    const { pool, member } = chosen
    return { path: `/pools/${pool.id}/members/${member.id}`, ...change(pool, member) }
  }
  const learnIds = async ({ id, members }: Pool) => {
    const { members: shown } = (await call('GET', `/pools/${id}/members`)) as {
      members: { id: string; address: string; protocol_port: number }[]
    }
    for (const member of members) {
      member.id = shown.find(one => `${one.address}:${one.protocol_port}` === nameOf(member))?.id ?? ''
    }
  }
  /** Replaces all members of a pool at once: those that stay, and new ones. */
  const batch = (pool: Pool, staying: Member[], coming: Member[]): Change => {
    for (const member of pool.members) if (!staying.includes(member)) leaves(pool, member)
    const members = [...staying, ...coming]
    return {
      method: 'PUT',
      path: `/pools/${pool.id}/members`,
      body: { members: members.map(bodyOf) },
      after: () => {
        pool.members = members
        return learnIds(pool)
      },
    }
  }

  return {
    'member joins': () => {
      const pool = pick(pools.filter(({ members }) => members.length < MAX_MEMBERS))
      if (pool === null) return null
      const member = newMember()
      return {
        method: 'POST',
        path: `/pools/${pool.id}/members`,
        body: { member: bodyOf(member) },
        after: answer => pool.members.push({ ...member, id: answer?.member?.id ?? '' }),
      }
    },
    'member leaves': () =>
      changeMember(
        () => true,
        (pool, member) => {
          leaves(pool, member)
          const after = () => {
            pool.members = pool.members.filter(other => other !== member)
          }
          return { method: 'DELETE', after }
        },
      ),
    'member disabled': () =>
      changeMember(
        ({ isEnabled }) => isEnabled,
        (pool, member) => {
          leaves(pool, member)
          member.isEnabled = false
          return { method: 'PUT', body: { member: { admin_state_up: false } } }
        },
      ),
    'member enabled': () =>
      changeMember(
        ({ isEnabled }) => !isEnabled,
        (_pool, member) => {
          member.isEnabled = true
          return { method: 'PUT', body: { member: { admin_state_up: true } }, after: () => isBack(member) }
        },
      ),
    'weight of a member': () =>
      changeMember(
        () => true,
        (_pool, member) => {
          member.weight = random(10)
          return { method: 'PUT', body: { member: { weight: member.weight } } }
        },
      ),
    'member is a backup or not': () =>
      changeMember(
        () => true,
        () => ({ method: 'PUT', body: { member: { backup: random(2) === 0 } } }),
      ),
    'where a member is checked': () =>
      changeMember(
        () => true,
        (_pool, { port }) => ({ method: 'PUT', body: { member: { monitor_port: random(2) === 0 ? port : null } } }),
      ),
    'batch of members': () => {
      const pool = pick(pools)
      if (pool === null) return null
      const gone = pick(pool.members.filter(({ stays }) => !stays))
      const staying = pool.members.filter(member => member !== gone)
      for (const member of staying) if (!member.stays) member.weight = random(10)
      const room = MAX_MEMBERS - staying.length
      return batch(
        pool,
        staying,
        Array.from({ length: Math.min(2, room) }, () => newMember()),
      )
    },
    'address of a member': () => {
      const chosen = pickMember()
      if (chosen === null) return null
      const { pool, member } = chosen
      return batch(
        pool,
        pool.members.filter(other => other !== member),
        [newMember()],
      )
    },
  }
}
