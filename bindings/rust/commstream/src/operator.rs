use std::ffi::CString;
use std::mem::{align_of, size_of};
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use commstream_sys as ffi;

use crate::handle::Handle;
use crate::inside;
use crate::span::Units;
use crate::{Communicator, Element, Error, ErrorKind, Op, Result};

/// A reduction operator of the program's own, for elements of type `T`.
///
/// Calls take a reference to it where they take an [`Op`]. A clone is the same operator; it lives as long as a clone of it, or an operation
/// or plan that uses it. It keeps its communicator open, and serves all communicators of the same world on this rank.
///
/// Every rank that reduces with it makes an operator of the same name, element size and kind. The function is applied in the order of ranks,
/// so it need not be commutative, only associative. It runs on any thread that makes progress, also on the library's own, and on several at
/// once. It must not call the library: such calls return [`ErrorKind::State`], but
/// [`Communicator::rank`] and [`Communicator::size`] may be asked. What is dropped there is freed by a thread of its own.
///
/// **Panics.** A panic does not leave the function. The operation has no result then: this rank's wait returns [`ErrorKind::Aborted`] with
/// the text of the panic, and fails the whole world as [`Communicator::abort`] does. Another rank may have ended that one call before, with
/// a wrong result; its next call tells it.
///
/// ```
/// # fn main() -> commstream::Result<()> {
/// use commstream::{Communicator, Operator};
///
/// let world = Communicator::open()?;
/// // The element that is greatest by its absolute value.
/// let greatest = Operator::commutative(&world, "greatest", |a: f64, b: f64| if b.abs() > a.abs() { b } else { a })?;
/// let mine = [f64::from(world.rank()), -2.0 * f64::from(world.rank())];
/// let mut out = [0.0; 2];
/// world.allreduce(&mine, &mut out, &greatest)?;
/// assert_eq!(out[1], -2.0 * f64::from(world.size() - 1));
/// # Ok(()) }
/// ```
///
/// What it borrows must outlive everything, since an operation may run it later:
///
/// ```compile_fail
/// # fn main() -> commstream::Result<()> {
/// # let world = commstream::Communicator::open()?;
/// let factor = 2.0;
/// let scaled = commstream::Operator::commutative(&world, "scaled", |a: f64, b: f64| a + factor * b)?; // error: it borrows factor
/// # Ok(()) }
/// ```
pub struct Operator<T: Element> {
    core: Arc<Core<T>>,
}

impl<T: Element> Clone for Operator<T> {
    fn clone(&self) -> Operator<T> {
        Operator { core: Arc::clone(&self.core) }
    }
}

/// right = left op right, for each pair.
type Combine<T> = dyn Fn(&[T], &mut [T]) + Send + Sync;

struct Core<T: Element> {
    op: ffi::comm_op,
    world: Arc<Handle>, // in which the number is valid
    function: Arc<Function<T>>,
    units: Units, // that calls pass
}

/// What the C library calls. It is freed after the operator's number.
struct Function<T> {
    name: String,
    combine: Box<Combine<T>>,
    panicked: AtomicBool,
    text: Mutex<String>, // of the first panic
}

impl<T: Element> Operator<T> {
    /// Makes an operator of a function of two elements, of which either may come first.
    pub fn commutative(c: &Communicator, name: &str, combine: impl Fn(T, T) -> T + Send + Sync + 'static) -> Result<Operator<T>> {
        Operator::of_slices(c, name, true, each(combine))
    }

    /// Makes an operator of a function of two elements; the first one is of lower ranks. For functions that are associative and not
    /// commutative, such as a product of matrices.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Communicator, Operator};
    ///
    /// let world = Communicator::open()?;
    /// // Compositions of x -> a * x + b.
    /// let then = Operator::associative(&world, "then", |[a, b]: [i64; 2], [c, d]: [i64; 2]| [a * c, b * c + d])?;
    /// let mut all = [[0; 2]];
    /// world.scan(&[[2, 1]], &mut all, &then)?;
    /// assert_eq!(all[0], [2i64 << world.rank(), (2 << world.rank()) - 1]);
    /// # Ok(()) }
    /// ```
    pub fn associative(c: &Communicator, name: &str, combine: impl Fn(T, T) -> T + Send + Sync + 'static) -> Result<Operator<T>> {
        Operator::of_slices(c, name, false, each(combine))
    }

    /// Makes an operator of a function of slices of equal length: `right[i] = left[i] op right[i]` for each element; `left` is of lower
    /// ranks. How many elements it gets at once is the library's choice.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Communicator, Operator};
    ///
    /// let world = Communicator::open()?;
    /// let saturating = Operator::of_slices(&world, "saturating", true, |left: &[u8], right: &mut [u8]| {
    ///     for (l, r) in left.iter().zip(right) {
    ///         *r = l.saturating_add(*r);
    ///     }
    /// })?;
    /// let mut load = [200u8; 3];
    /// world.allreduce_in_place(&mut load, &saturating)?;
    /// assert_eq!(load[2], if world.size() == 1 { 200 } else { 255 });
    /// # Ok(()) }
    /// ```
    pub fn of_slices(
        c: &Communicator,
        name: &str,
        commutative: bool,
        combine: impl Fn(&[T], &mut [T]) + Send + Sync + 'static,
    ) -> Result<Operator<T>> {
        let c_name = CString::new(name).map_err(|_| Error::new(ErrorKind::Argument, "operator: name has a zero byte; expected none"))?;
        let (panicked, text) = (AtomicBool::new(false), Mutex::new(String::new()));
        let function = Arc::new(Function { name: name.into(), combine: Box::new(combine), panicked, text });
        let options = ffi::comm_op_options {
            size: size_of::<ffi::comm_op_options>(),
            name: c_name.as_ptr(),
            element_bytes: size_of::<T>(),
            ordered: i32::from(!commutative),
            ..Default::default()
        };
        let (mut op, argument) = (0, Arc::as_ptr(&function) as *mut c_void);
        // SAFETY: the options are copied. The function lives until the number is freed, and as long as an operation that uses it.
        c.handle.ask(|c| unsafe { ffi::comm_op_create(c, Some(call::<T>), argument, &options, &mut op) })?;
        let units = Units { of: ffi::COMM_BYTE, each: size_of::<T>() };
        Ok(Operator { core: Arc::new(Core { op, world: Arc::clone(&c.handle), function, units }) })
    }

    /// Makes the operator that multiplies this rank's elements by `factor` and adds the products of all ranks, each of which has a factor of
    /// its own. Every product is rounded to the type; then it is [`Op::Sum`]. For numbers: integers, floats and complex ones.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Communicator, Operator};
    ///
    /// let world = Communicator::open()?;
    /// let weighted = Operator::premul_sum(&world, f64::from(world.rank() + 1))?;
    /// let mut out = [0.0];
    /// world.allreduce(&[10.0], &mut out, &weighted)?;
    /// assert_eq!(out[0], 5.0 * f64::from(world.size()) * f64::from(world.size() + 1));
    /// # Ok(()) }
    /// ```
    pub fn premul_sum(c: &Communicator, factor: T) -> Result<Operator<T>> {
        let units = Units::of::<T>();
        if units.each != 1 {
            let text = format!("premul_sum: an element has {} numbers; expected one", units.each);
            return Err(Error::new(ErrorKind::Argument, text));
        }
        let (panicked, text) = (AtomicBool::new(false), Mutex::new(String::new()));
        let function = Arc::new(Function { name: "premul_sum".into(), combine: Box::new(|_, _| ()), panicked, text }); // nobody calls it
        let mut op = 0;
        let at: *const T = &factor;
        // SAFETY: the factor is an element of that type, and is copied.
        c.handle.ask(|c| unsafe { ffi::comm_op_create_premul_sum(c, units.of, at.cast(), &mut op) })?;
        Ok(Operator { core: Arc::new(Core { op, world: Arc::clone(&c.handle), function, units }) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.function.name
    }
}

fn each<T: Element>(combine: impl Fn(T, T) -> T + Send + Sync + 'static) -> impl Fn(&[T], &mut [T]) + Send + Sync + 'static {
    move |left, right| {
        for (left, right) in left.iter().zip(right) {
            *right = combine(*left, *right);
        }
    }
}

impl<T: Element> Drop for Core<T> {
    fn drop(&mut self) {
        let (world, op, function) = (Arc::clone(&self.world), self.op, Arc::clone(&self.function));
        inside::outside(move || {
            // SAFETY: it is freed once. Operations that used it have ended: each keeps the core until then.
            unsafe { ffi::comm_op_free(world.raw(), op) };
            drop(function);
        });
    }
}

/// # Safety
/// The C library's contract of an operator, with a `Function<T>` as argument.
unsafe extern "C" fn call<T: Element>(right: *mut c_void, left: *const c_void, elements: usize, argument: *mut c_void) {
    // SAFETY: the operator's core has it.
    let function = unsafe { &*(argument as *const Function<T>) };
    // SAFETY: both have so many elements, and the library leaves them alone meanwhile.
    inside::operator(|| unsafe { function.apply(left.cast(), right.cast(), elements) });
}

impl<T: Element> Function<T> {
    /// After a panic it does nothing more: the operation has no result.
    ///
    /// # Safety
    /// Both have `elements` elements, perhaps not aligned; `right` is nobody else's.
    unsafe fn apply(&self, left: *const T, right: *mut T, elements: usize) {
        if self.panicked.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the caller's.
        let body = AssertUnwindSafe(|| unsafe { self.combine(left, right, elements) });
        if let Err(payload) = catch_unwind(body) {
            let text = format!("operator {:?} panicked: {}", self.name, inside::text_of(payload));
            let mut first = self.text.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.panicked.swap(true, Ordering::Release) {
                *first = text;
            }
        }
    }

    /// # Safety
    /// As for `apply`.
    unsafe fn combine(&self, left: *const T, right: *mut T, elements: usize) {
        if left as usize % align_of::<T>() == 0 && right as usize % align_of::<T>() == 0 {
            // SAFETY: aligned, and every pattern of bits is a value.
            let (left, right) = unsafe { (std::slice::from_raw_parts(left, elements), std::slice::from_raw_parts_mut(right, elements)) };
            return (self.combine)(left, right);
        }
        for i in 0..elements {
            // SAFETY: as above, without the alignment.
            let (one, mut other) = unsafe { ([left.add(i).read_unaligned()], [right.add(i).read_unaligned()]) };
            (self.combine)(&one, &mut other);
            // SAFETY: as above.
            unsafe { right.add(i).write_unaligned(other[0]) };
        }
    }

    fn panicked(&self) -> Option<String> {
        let panicked = self.panicked.load(Ordering::Acquire);
        panicked.then(|| self.text.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// An operator without its type, for as long as an operation uses it.
pub trait Watched: Send + Sync {
    /// The error of a panic in it.
    fn failed(&self) -> Option<Error>;
    /// Tells it from others.
    fn id(&self) -> *const ();
}

impl<T: Element> Watched for Core<T> {
    fn failed(&self) -> Option<Error> {
        let mut error = Error::new(ErrorKind::Aborted, self.function.panicked()?);
        error.operation = self.function.name.clone();
        // SAFETY: the handle is open or closed. The other ranks learn of it here; a second call changes nothing.
        unsafe { ffi::comm_abort(self.world.raw(), 1) };
        Some(error)
    }

    fn id(&self) -> *const () {
        (self as *const Core<T>).cast()
    }
}

/// The result of an operation with this operator.
pub(crate) fn checked(operator: Option<&dyn Watched>, result: Result<()>) -> Result<()> {
    operator.and_then(Watched::failed).map_or(result, Err)
}

/// The number of an operator, and what the elements are for it.
#[derive(Clone, Copy)]
pub struct How {
    pub op: ffi::comm_op,
    pub units: Units,
}

/// What combines two elements of type `T` in a reduction: an [`Op`], or a reference to an [`Operator`].
pub trait Reduce<T: Element>: private::Sealed<T> {}

mod private {
    use super::*;

    pub trait Sealed<T> {
        #[doc(hidden)]
        fn how(&self, c: &Handle) -> Result<(How, Option<Arc<dyn Watched>>)>;
    }
}
pub(crate) use private::Sealed;

impl<T: Element> Reduce<T> for Op {}
impl<T: Element> Reduce<T> for &Operator<T> {}

impl<T: Element> Sealed<T> for Op {
    fn how(&self, _: &Handle) -> Result<(How, Option<Arc<dyn Watched>>)> {
        Ok((How { op: *self as ffi::comm_op, units: Units::of::<T>() }, None))
    }
}

impl<T: Element> Sealed<T> for &Operator<T> {
    fn how(&self, c: &Handle) -> Result<(How, Option<Arc<dyn Watched>>)> {
        let (own, other) = (self.core.world.raw(), c.raw());
        // SAFETY: a closed communicator has no rank.
        let here = unsafe {
            own == other || (ffi::comm_rank(own) >= 0 && ffi::comm_translate(other, ffi::comm_rank(other), own) == ffi::comm_rank(own))
        };
        if !here {
            let text = format!(
                "operator {:?} is of another world, or of another rank; expected one made on this rank for this world",
                self.name()
            );
            return Err(Error::new(ErrorKind::Argument, text));
        }
        Ok((How { op: self.core.op, units: self.core.units }, Some(Arc::clone(&self.core) as Arc<dyn Watched>)))
    }
}
