use crate::Element;

/// What the buffers of a [`Plan`](crate::Plan) may be, so that [`Plan::buffers`](crate::Plan::buffers) can show them: numbers, arrays,
/// vectors and boxed slices of elements, vectors of vectors, and tuples of these.
///
/// A plan has recorded where the elements are. So it never gives out the vector itself, which could be made longer or be replaced, but its
/// slice.
///
/// # Safety
/// With the view no safe code can move or free memory that the value owns. That is so for views made of mutable references to elements.
pub unsafe trait Buffers<'a> {
    /// The elements, by reference.
    type View: 'a;
    /// All of it.
    fn view(&'a mut self) -> Self::View;
}

// SAFETY: each view has references to elements, which own nothing.
unsafe impl<'a, T: Element + 'a> Buffers<'a> for Vec<T> {
    type View = &'a mut [T];
    fn view(&'a mut self) -> &'a mut [T] {
        self
    }
}

// SAFETY: as above.
unsafe impl<'a, T: Element + 'a> Buffers<'a> for Box<[T]> {
    type View = &'a mut [T];
    fn view(&'a mut self) -> &'a mut [T] {
        self
    }
}

// SAFETY: as above. The array lies in the plan itself.
unsafe impl<'a, T: Element + 'a, const N: usize> Buffers<'a> for [T; N] {
    type View = &'a mut [T; N];
    fn view(&'a mut self) -> &'a mut [T; N] {
        self
    }
}

// SAFETY: as above.
unsafe impl<'a, T: Element + 'a> Buffers<'a> for Vec<Vec<T>> {
    type View = Vec<&'a mut [T]>;
    fn view(&'a mut self) -> Vec<&'a mut [T]> {
        self.iter_mut().map(|vector| &mut vector[..]).collect()
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        // SAFETY: it consists of views.
        unsafe impl<'a, $($name: Buffers<'a>),*> Buffers<'a> for ($($name,)*) {
            type View = ($($name::View,)*);
            #[allow(non_snake_case, clippy::unused_unit)]
            fn view(&'a mut self) -> Self::View {
                let ($($name,)*) = self;
                ($($name.view(),)*)
            }
        }
    };
}
tuples! {}
tuples! { A }
tuples! { A B }
tuples! { A B C }
tuples! { A B C D }
tuples! { A B C D E }
tuples! { A B C D E F }
