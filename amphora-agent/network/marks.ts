/** Marks of packets, by which routing rules know them. */

/** Packets of connections that another amphora accepted go through the tunnel of a handover. */
export const TUNNEL_MARK = '0x6b72'

/** Packets of UDP and SCTP between clients and members, once they may be forwarded. */
export const FORWARDED_MARK = '0x6b75'

const FIRST_REPLY_MARK = 0x6b760000

/** Replies to clients of a VIP: the mark leads to the VIP's routes before the reply has the VIP as its source. */
export const replyMark = (vip: number): string => `0x${(FIRST_REPLY_MARK + vip).toString(16)}`

const FIRST_HANDOVER_MARK = 0x6b770000

/** As replyMark, on an amphora that has handed the VIP over. */
export const handoverReplyMark = (vip: number): string => `0x${(FIRST_HANDOVER_MARK + vip).toString(16)}`

export const isReplyMark = (mark: string): boolean => Math.floor(Number(mark) / 2 ** 16) === FIRST_REPLY_MARK / 2 ** 16
